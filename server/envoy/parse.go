package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// A File is a configuration file.
type File struct {
	Name string // for errors
	Data []byte
}

// Parse reads files. A domain in two of them is an error, unless merge is set. The error is a
// *policyfile.InvalidError with all problems.
func Parse(files []File, merge bool) (*Config, error) {
	p := &parser{config: &Config{domains: map[string]*level{}}, in: map[string]string{}}
	for _, f := range files {
		p.file = f.Name
		root, err := policyfile.ReadYAML(f.Name, f.Data)
		var wrong *policyfile.InvalidError
		switch {
		case errors.As(err, &wrong):
			p.problems = append(p.problems, wrong.Problems...)
		case err != nil:
			return nil, err
		default:
			p.root(root, merge)
		}
	}
	if len(p.problems) > 0 {
		return nil, &policyfile.InvalidError{Problems: p.problems}
	}
	return p.config, nil
}

// parser reads one file after the other.
type parser struct {
	config   *Config
	file     string
	in       map[string]string // the file of each domain
	problems []policyfile.Problem
}

func (p *parser) wrong(at *policyfile.Value, message, fix string) {
	line, col := 1, 1
	if at != nil {
		line, col = at.Line, at.Col
	}
	p.problems = append(p.problems, policyfile.Problem{File: p.file, Line: line, Col: col, Message: message, Fix: fix})
}

// fields returns the values of a map by their names; nil for one without a value. It reports unknown
// names.
func (p *parser) fields(v *policyfile.Value, known ...string) map[string]*policyfile.Value {
	all := map[string]*policyfile.Value{}
	if v.IsText || v.IsList {
		p.wrong(v, "this must be a map", "write "+strings.Join(known[:2], ": ..., ")+": ...")
		return all
	}
	for _, f := range v.Fields {
		if slices.Contains(known, f.Name) {
			all[f.Name] = f.Value
			continue
		}
		fix := "the keys here are " + strings.Join(known, ", ")
		if near := nearest.To(f.Name, known); near != "" {
			fix = "did you mean " + near + "?"
		}
		p.wrong(&policyfile.Value{Line: f.Line, Col: f.Col}, fmt.Sprintf("config error, unknown key '%s'", f.Name), fix)
	}
	return all
}

// text reads a text; empty for none.
func (p *parser) text(v *policyfile.Value, name string) string {
	if v == nil {
		return ""
	}
	if !v.IsText {
		p.wrong(v, name+" must be a text", "write "+name+": TEXT")
		return ""
	}
	return v.Text
}

// limitOf reads the limit of a descriptor: the name of one of the policy, or parameters in place of it.
func (p *parser) limitOf(v *policyfile.Value, own string) (name string, inline *policyfile.Value) {
	switch {
	case v != nil && v.IsText && v.Text == "":
		p.wrong(v, "limit is empty, and the descriptor would have no limit", "write limit: NAME, or limit: { token_bucket: { rate: 10/s, burst: 20 } }")
		return "", nil
	case v == nil || v.IsText:
		return p.text(v, "limit"), nil
	case v.IsList:
		p.wrong(v, "limit must be the name of a limit of the policy, or parameters like those there", "write limit: NAME, or limit: { token_bucket: { rate: 10/s, burst: 20 } }")
		return "", nil
	}
	return own, v
}

// settled reads the name of the limit that costs of work that is done are charged to.
func (p *parser) settled(v *policyfile.Value) string {
	if v != nil && (!v.IsText || v.Text == "") {
		p.wrong(v, "settle must be the name of a limit", "write the parameters in a descriptor with limit, or under limits of the policy file, and settle: NAME here")
		return ""
	}
	return p.text(v, "settle")
}

// truth reads true or false.
func (p *parser) truth(v *policyfile.Value, name string) bool {
	switch text := strings.ToLower(p.text(v, name)); text {
	case "true", "yes", "on", "y":
		return true
	case "", "false", "no", "off", "n":
	default:
		p.wrong(v, fmt.Sprintf("%s is %q", name, text), "write true or false")
	}
	return false
}

func (p *parser) items(v *policyfile.Value, name string) []*policyfile.Value {
	if v != nil && !v.IsList {
		p.wrong(v, name+" must be a list", "begin each of its items with a dash")
		return nil
	}
	if v == nil {
		return nil
	}
	return v.Items
}

// root reads a file.
func (p *parser) root(v *policyfile.Value, merge bool) {
	f := p.fields(v, "domain", "descriptors")
	domain := p.text(f["domain"], "domain")
	if domain == "" {
		p.wrong(v, "config file cannot have empty domain", "write domain: NAME, as the filter of Envoy has it")
		return
	}
	at := p.config.domains[domain]
	if at != nil && !merge {
		p.wrong(f["domain"], fmt.Sprintf("duplicate domain '%s' in config file: %s has it, too", domain, p.in[domain]), "write merge_domains: true in listen.rls to join them")
		return
	}
	if at == nil {
		at = &level{}
		p.config.domains[domain], p.in[domain] = at, p.file
	}
	p.descriptors(at, f["descriptors"], domain, domain, policy.EnvoyPrefix+escaped(domain), nil)
}

// descriptors reads the descriptors of one depth. name is that of a limit above them, and open are the keys
// there whose values are open.
func (p *parser) descriptors(into *level, list *policyfile.Value, domain, path, name string, open []string) {
	for _, v := range p.items(list, "descriptors") {
		f := p.fields(v, "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata", "limit", "settle")
		d := &descriptor{entry: entry{p.text(f["key"], "key"), p.text(f["value"], "value")}, valueToMetric: p.truth(f["value_to_metric"], "value_to_metric")}
		if d.key == "" {
			p.wrong(v, "descriptor has empty key", "write key: NAME, as the action of Envoy sends it")
			continue
		}
		at, own := path+"."+d.key, name+"/"+escaped(d.key)
		if d.value != "" {
			at, own = at+"_"+d.value, own+"="+escaped(d.value)
		}
		if strings.Contains(d.value, "*") {
			d.pattern = strings.Split(d.value, "*")
		}
		d.shared = p.truth(f["share_threshold"], "share_threshold")
		if d.shared && d.pattern == nil {
			p.wrong(f["share_threshold"], fmt.Sprintf("share_threshold can only be used with wildcard values, but found '%s'", at), "write a value with a star, like value: user-*")
		}
		if !into.add(d) {
			p.wrong(v, fmt.Sprintf("duplicate descriptor composite key '%s'", at), "join the two descriptors, or give one another value")
			continue
		}
		openHere := open
		if d.isOpen() {
			openHere = append(slices.Clip(open), d.key)
		}
		d.rule = p.rule(f, limitName(own))
		if d.rule != nil {
			d.rule.Path, d.rule.Domain = at, domain
			if d.rule.Limit != "" {
				d.rule.Open = openHere
			}
			p.config.rules = append(p.config.rules, d.rule)
		}
		p.descriptors(&d.below, f["descriptors"], domain, at, own, openHere)
	}
}

// add adds a descriptor. It reports false if there is one like it.
func (l *level) add(d *descriptor) bool {
	switch {
	case d.value == "":
		if l.bare[d.key] != nil {
			return false
		}
		if l.bare == nil {
			l.bare = map[string]*descriptor{}
		}
		l.bare[d.key] = d
		return true
	case l.exact[d.entry] != nil:
		return false
	}
	if l.exact == nil {
		l.exact = map[entry]*descriptor{}
	}
	l.exact[d.entry] = d
	if d.pattern != nil {
		l.wildcards = append(l.wildcards, d)
	}
	return true
}

// rule reads what a descriptor says of its limit; nil if it says nothing. own is the name of a limit that
// is written in it.
func (p *parser) rule(f map[string]*policyfile.Value, own string) *Rule {
	r := &Rule{
		Shadow: p.truth(f["shadow_mode"], "shadow_mode"), Quota: p.truth(f["quota_mode"], "quota_mode"),
		DetailedMetric: p.truth(f["detailed_metric"], "detailed_metric"),
	}
	r.Limit, r.Inline = p.limitOf(f["limit"], own)
	if m := f["metadata"]; m != nil {
		if r.Metadata, _ = plain(m).(map[string]any); r.Metadata == nil {
			p.wrong(m, "metadata must be a map", "write metadata: { NAME: VALUE }")
		}
	}
	if settle := p.settled(f["settle"]); settle != "" {
		if r.Limit != "" {
			p.wrong(f["settle"], "a descriptor has a limit or settle, and not both", "write a second descriptor for the costs that are known afterwards")
		}
		r.Limit, r.Settles = settle, true
	}
	switch {
	case r.Limit != "" && f["rate_limit"] != nil:
		p.wrong(f["rate_limit"], "a descriptor has a rate_limit or a limit of the policy, and not both", "take one of them out")
		return nil
	case r.Limit != "":
		for _, mode := range []string{"shadow_mode", "quota_mode"} {
			if p.truth(f[mode], mode) {
				p.wrong(f[mode], mode+" is about rate_limit, and this limit would be enforced nevertheless", "write shadow: true beside the parameters of the limit")
			}
		}
		written := f["limit"]
		if r.Settles {
			written = f["settle"]
		}
		r.At = policyfile.Place{File: p.file, Line: written.Line, Col: written.Col}
		return r
	case f["rate_limit"] == nil:
		return nil
	}
	l := p.fields(f["rate_limit"], "unit", "requests_per_unit", "unlimited", "name", "replaces")
	r.Name, r.Unlimited = p.text(l["name"], "name"), p.truth(l["unlimited"], "unlimited")
	unit := p.text(l["unit"], "unit")
	r.Unit = parseUnit(unit)
	switch {
	case r.Unlimited && r.Unit != 0:
		p.wrong(l["unit"], "should not specify rate limit unit when unlimited", "take unit out")
	case !r.Unlimited && r.Unit == 0:
		p.wrong(f["rate_limit"], fmt.Sprintf("invalid rate limit unit '%s'", unit), "write second, minute, hour, day, week, month or year")
	}
	if n := l["requests_per_unit"]; n != nil {
		requests, err := strconv.ParseUint(strings.ReplaceAll(p.text(n, "requests_per_unit"), "_", ""), 0, 32)
		if err != nil {
			p.wrong(n, fmt.Sprintf("requests_per_unit is %q", n.Text), "write a whole number from 0 to 4294967295")
		}
		r.Requests = uint32(requests)
	}
	for _, item := range p.items(l["replaces"], "replaces") {
		switch name := p.text(p.fields(item, "name", "name")["name"], "name"); name {
		case "":
			p.wrong(item, "should not have an empty replaces entry", "write - name: NAME")
		case r.Name:
			p.wrong(item, "replaces should not contain name of same descriptor", "name another one")
		default:
			r.Replaces = append(r.Replaces, name)
		}
	}
	return r
}

// plain returns a value as encoding/json has it. A text that reads as a number, true, false or null is
// one, as plain scalars are in YAML.
func plain(v *policyfile.Value) any {
	switch {
	case v == nil:
		return nil
	case v.IsList:
		all := make([]any, len(v.Items))
		for i, item := range v.Items {
			all[i] = plain(item)
		}
		return all
	case !v.IsText:
		all := map[string]any{}
		for _, f := range v.Fields {
			all[f.Name] = plain(f.Value)
		}
		return all
	}
	var scalar any
	if json.Unmarshal([]byte(v.Text), &scalar) == nil {
		switch scalar.(type) {
		case float64, bool, nil:
			return scalar
		}
	}
	return v.Text
}
