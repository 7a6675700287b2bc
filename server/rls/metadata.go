package rls

import (
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
)

// metadata is the request as dynamic metadata, which other filters of Envoy can read: the domain, the
// descriptors, which of them are over a limit with quota_mode, and the metadata of rules with quota_mode
// that a descriptor is within.
func (c *call) metadata(violations []int) *structpb.Struct {
	var descriptors, over []*structpb.Value
	for _, d := range c.req.Descriptors {
		var entries []*structpb.Value
		for _, e := range d.GetEntries() {
			entries = append(entries, structpb.NewStringValue(text(e)))
		}
		fields := map[string]*structpb.Value{"entries": list(entries)}
		if d.GetLimit() != nil {
			fields["limit"] = structpb.NewStringValue(d.GetLimit().String())
		}
		if d.GetHitsAddend() != nil {
			fields["hitsAddend"] = structpb.NewNumberValue(float64(d.GetHitsAddend().GetValue()))
		}
		descriptors = append(descriptors, structpb.NewStructValue(&structpb.Struct{Fields: fields}))
	}
	fields := map[string]*structpb.Value{}
	for i := range c.descriptors {
		if d := &c.descriptors[i]; d.rule != nil && d.quota && !slices.Contains(violations, i) {
			for name, value := range c.rules.metadata[d.rule].GetFields() {
				fields[name] = value
			}
		}
	}
	fields["domain"], fields["descriptors"] = structpb.NewStringValue(c.req.Domain), list(descriptors)
	if n := c.req.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n))
	}
	for _, i := range violations {
		over = append(over, structpb.NewNumberValue(float64(i)))
	}
	if len(over) > 0 {
		fields["quotaModeViolations"] = list(over)
	}
	enabled := false
	for i := range c.descriptors {
		d := &c.descriptors[i]
		enabled = enabled || d.rule != nil && d.rule.Quota
	}
	fields["quotaModeEnabled"] = structpb.NewBoolValue(enabled)
	return &structpb.Struct{Fields: fields}
}

func list(all []*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: all})
}
