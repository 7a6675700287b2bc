package rls

import (
	"context"
	"fmt"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirflow/weir/server/envoy"
)

// Bounds of a request.
const (
	maxDescriptors = 128
	maxEntries     = 64 // of one descriptor
)

// ShouldRateLimit answers a request of Envoy.
func (f *Face) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	response, err := f.answer(ctx, req)
	f.metrics.answered(response, err)
	return response, err
}

func (f *Face) answer(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	r := f.rules.Load()
	c := call{face: f, rules: r, req: req}
	c.descriptors = c.few[:0]
	find := c.match
	if r.config == nil {
		find = c.nameByEntry
	}
	if err := find(); err != nil {
		return nil, err
	}
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	if err := c.count(ctx); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return c.response(), nil
}

// checkRequest refuses requests that no Envoy sends.
func checkRequest(req *pb.RateLimitRequest) error {
	switch n := len(req.GetDescriptors()); {
	case req.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "rate limit domain must not be empty")
	case n == 0:
		return status.Error(codes.InvalidArgument, "rate limit descriptor list must not be empty")
	case n > maxDescriptors:
		return status.Errorf(codes.InvalidArgument, "%d descriptors: a request has at most %d", n, maxDescriptors)
	}
	for _, d := range req.Descriptors {
		if n := len(d.GetEntries()); n > maxEntries {
			return status.Errorf(codes.InvalidArgument, "a descriptor with %d entries: it has at most %d", n, maxEntries)
		}
	}
	return nil
}

// call is a request that is being decided.
type call struct {
	face        *Face
	rules       *rules
	req         *pb.RateLimitRequest
	descriptors []descriptor
	few         [4]descriptor
	hits        []hit
	fewHits     [4]hit
	replaced    map[string]bool // names of rules; nil for none
	own         *own            // nil if no descriptor names a limit of the policy
}

// descriptor is a descriptor of a request with what decides about it.
type descriptor struct {
	limit  *pb.RateLimitResponse_RateLimit // nil for none
	rule   *envoy.Rule                     // nil for none, and for a limit in the request
	metric string
	shared []string
	hits   uint64
	gives  bool // negative hits
	quota  bool
	free   bool                                   // unlimited
	hit    int                                    // its position in hits; -1 for none
	own    *pb.RateLimitResponse_DescriptorStatus // what a limit of the policy decided; nil for none
}

// match finds what decides about each descriptor.
func (c *call) match() error {
	for i, d := range c.req.Descriptors {
		out := descriptor{hit: -1, hits: hitsOf(c.req, d), gives: d.GetIsNegativeHits()}
		if err := c.find(i, d, &out); err != nil {
			return err
		}
		c.descriptors = append(c.descriptors, out)
	}
	if c.replaced != nil {
		for i := range c.descriptors {
			if d := &c.descriptors[i]; d.limit != nil && c.replaced[d.limit.Name] {
				d.limit, d.rule, d.quota = nil, nil, false
			}
		}
	}
	return nil
}

// hitsOf returns the hits of a descriptor: its own, or those of the request.
func hitsOf(req *pb.RateLimitRequest, d *ratelimit.RateLimitDescriptor) uint64 {
	if own := d.GetHitsAddend(); own != nil {
		return own.GetValue()
	}
	return uint64(max(1, req.GetHitsAddend()))
}

// find finds the rule for a descriptor, or takes the limit that it brings.
func (c *call) find(at int, d *ratelimit.RateLimitDescriptor, out *descriptor) error {
	config, domain := c.rules.config, c.req.Domain
	if !config.HasDomain(domain) {
		c.face.metrics.unknownDomain.Add(1)
		return nil
	}
	if own := d.GetLimit(); own != nil {
		unit := pb.RateLimitResponse_RateLimit_Unit(own.GetUnit())
		if unitOf(unit) == 0 {
			return status.Errorf(codes.InvalidArgument, "the limit of a descriptor has the unit %v", own.GetUnit())
		}
		out.limit = &pb.RateLimitResponse_RateLimit{RequestsPerUnit: own.GetRequestsPerUnit(), Unit: unit}
		out.metric = domain + " (limits of requests)"
		return nil
	}
	m := envoy.Find(config, domain, d.GetEntries())
	if m.Rule == nil {
		return nil
	}
	for _, name := range m.Rule.Replaces {
		if c.replaced == nil {
			c.replaced = map[string]bool{}
		}
		c.replaced[name] = name != ""
	}
	if m.Rule.Unlimited {
		out.free = true
		return nil
	}
	if m.Rule.Limit != "" {
		return c.name(at, named{limit: m.Rule.Limit, key: m.Open, settles: m.Rule.Settles}, out)
	}
	out.rule, out.limit, out.metric, out.shared = m.Rule, c.rules.shown[m.Rule], m.Metric, m.Shared
	out.quota = c.rules.QuotaMode || m.Rule.Quota
	return nil
}

// unitOf returns the unit of a limit in a request; 0 for none.
func unitOf(u pb.RateLimitResponse_RateLimit_Unit) envoy.Unit {
	for i, known := range protoUnits {
		if known == u {
			return envoy.Unit(i)
		}
	}
	return 0
}

// count counts the hits of each descriptor that has a limit, even if another one is over.
func (c *call) count(ctx context.Context) error {
	c.hits = c.fewHits[:0]
	var buf [256]byte
	for i := range c.descriptors {
		d := &c.descriptors[i]
		if d.limit == nil {
			continue
		}
		key := appendKey(buf[:0], c.req.Domain, c.req.Descriptors[i].GetEntries(), d.shared)
		d.hit = len(c.hits)
		c.hits = append(c.hits, hit{unit: unitOf(d.limit.Unit), key: string(key), requests: d.limit.RequestsPerUnit, hits: d.hits, gives: d.gives})
	}
	if len(c.hits) == 0 {
		return nil
	}
	return c.face.counters.count(ctx, c.rules, c.hits)
}

// response builds the response from the counts.
func (c *call) response() *pb.RateLimitResponse {
	out := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, len(c.descriptors))}
	var tightest *pb.RateLimitResponse_DescriptorStatus
	var violations []int
	for i := range c.descriptors {
		d := &c.descriptors[i]
		s := c.status(d)
		out.Statuses[i] = s
		if s.CurrentLimit != nil && (tightest == nil || s.LimitRemaining < tightest.LimitRemaining) && out.OverallCode == pb.RateLimitResponse_OK {
			tightest = s
		}
		if s.Code != pb.RateLimitResponse_OVER_LIMIT {
			continue
		}
		if d.own == nil && (d.quota || c.rules.QuotaMode) {
			violations = append(violations, i)
			out.Statuses[i] = &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK, CurrentLimit: s.CurrentLimit, LimitRemaining: s.LimitRemaining}
			continue
		}
		out.OverallCode, tightest = pb.RateLimitResponse_OVER_LIMIT, s
	}
	if c.own != nil && c.own.refused && !c.rules.ShadowMode { // nobody has to wait there
		out.OverallCode = pb.RateLimitResponse_OVER_LIMIT
		out.ResponseHeadersToAdd = c.own.retryAfter()
	}
	if c.rules.HeaderLimit != "" && tightest.GetCurrentLimit() != nil { // a ban has no current limit
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, c.headers(tightest)...)
	}
	if c.rules.ShadowMode {
		out.OverallCode = pb.RateLimitResponse_OK
	}
	if c.rules.DynamicMetadata {
		out.DynamicMetadata = c.metadata(violations)
	}
	return out
}

// status makes the status of one descriptor.
func (c *call) status(d *descriptor) *pb.RateLimitResponse_DescriptorStatus {
	switch {
	case d.own != nil:
		return d.own
	case d.free:
		return &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK, LimitRemaining: unlimited}
	case d.hit < 0:
		return &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	}
	h := &c.hits[d.hit]
	s := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK, CurrentLimit: d.limit, DurationUntilReset: durationpb.New(untilReset(h))}
	if h.over {
		s.Code = pb.RateLimitResponse_OVER_LIMIT
	} else {
		s.LimitRemaining = h.requests - uint32(min(h.used, uint64(h.requests)))
	}
	c.face.metrics.counted(d, h.over)
	if d.rule != nil && d.rule.Shadow {
		s.Code = pb.RateLimitResponse_OK
	}
	return s
}

// untilReset returns how long the window of a counter lasts, in whole seconds. A counter without
// hits does not know it; then the window follows this process's clock.
func untilReset(h *hit) time.Duration {
	left := h.reset
	if left <= 0 {
		length := h.unit.Length()
		left = length - time.Duration(time.Now().UnixNano()%int64(length))
	}
	return wholeSeconds(left)
}

// headers are the response headers about one status.
func (c *call) headers(s *pb.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	field := func(name string, value int64) *core.HeaderValue {
		return &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)}
	}
	all := []*core.HeaderValue{
		field(c.rules.HeaderLimit, int64(s.CurrentLimit.RequestsPerUnit)),
		field(c.rules.HeaderRemaining, int64(s.LimitRemaining)),
	}
	if s.DurationUntilReset != nil { // missing for a limit of the policy that no wait resets
		all = append(all, field(c.rules.HeaderReset, s.DurationUntilReset.GetSeconds()))
	}
	return all
}

// text returns a descriptor's entry as the dynamic metadata has it.
func text(e *ratelimit.RateLimitDescriptor_Entry) string {
	return fmt.Sprintf("%s=%s", e.GetKey(), e.GetValue())
}
