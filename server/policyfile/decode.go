package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
	"github.com/weirflow/weir/server/stores"
)

// decoder turns a tree into a policy. The schema has already reported values of a wrong type, so
// the decoder ignores them.
type decoder struct {
	findings []finding
	spoilt   map[string]bool // limits whose algorithm already has a problem
	complete func(*decoder, *policy.Limit)
}

func (d *decoder) wrong(msg, fix string, path ...string) {
	d.findings = append(d.findings, finding{path: path, msg: msg, fix: fix})
}

func (d *decoder) policy(root *node) (p policy.Policy) {
	p.Listen = d.listen(root.get("listen"))
	p.Admin = admin(root.get("admin"))
	p.AccessLog = d.accessLog(root.get("access_log"))
	p.DecisionLog = d.decisionLog(root.get("decision_log"))
	p.TrustedProxies = d.prefixes(root.get("trusted_proxies"), "trusted_proxies")
	p.ClientHeader = text(root.get("client_header"))
	p.Paths = paths(root.get("paths"))
	if headers := root.get("headers"); headers != nil {
		p.Headers = append([]string{}, texts(headers)...)
	}
	for _, f := range fields(root.get("stores")) {
		p.Stores = append(p.Stores, d.store(f.name, f.value))
	}
	p.Plans = d.plans(root.get("plans"))
	p.Warnings = policy.Warnings{Webhook: text(root.get("warnings").get("webhook")), SecretFile: text(root.get("warnings").get("secret_file"))}
	p.Priorities = priorities(root.get("priorities"))
	p.SnapshotFile = text(root.get("snapshot_file"))
	for _, f := range fields(root.get("limits")) {
		p.Limits = append(p.Limits, d.limit(f.name, f.value))
	}
	for _, f := range fields(root.get("upstreams")) {
		p.Upstreams = append(p.Upstreams, d.upstream(f.name, f.value))
	}
	for _, f := range fields(root.get("waiting_rooms")) {
		p.Rooms = append(p.Rooms, d.room(f.name, f.value))
	}
	for i, n := range items(root.get("routes")) {
		p.Routes = append(p.Routes, d.route(n, strconv.Itoa(i)))
	}
	d.routeBodies(root.get("routes"), p.Routes)
	d.kept(&p)
	return p
}

func admin(n *node) policy.Admin {
	tls := n.get("tls")
	return policy.Admin{TokenFile: text(n.get("token_file")), Cert: text(tls.get("cert")), Key: text(tls.get("key")), StateFile: text(n.get("state_file")), AuditLog: text(n.get("audit_log")), Recent: int(number(n.get("recent")))}
}

// prefixes parses a list of addresses and prefixes.
func (d *decoder) prefixes(n *node, path ...string) (all []netip.Prefix) {
	for i, t := range texts(n) {
		prefix, err := netip.ParsePrefix(t)
		if err != nil {
			addr, addrErr := netip.ParseAddr(t)
			if addrErr != nil {
				d.wrong(fmt.Sprintf("%q is neither an address nor a prefix", t), "write it like 10.0.0.0/8", append(slices.Clone(path), strconv.Itoa(i))...)
				continue
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		all = append(all, netip.PrefixFrom(prefix.Addr().Unmap(), unmappedBits(prefix)).Masked())
	}
	return all
}

// unmappedBits returns the length of a prefix after IPv4 inside IPv6 was turned into IPv4.
func unmappedBits(p netip.Prefix) int {
	if p.Addr().Is4In6() {
		return max(p.Bits()-96, 0)
	}
	return p.Bits()
}

func (d *decoder) store(name string, n *node) policy.Store {
	s := policy.Store{
		Name:      name,
		URL:       text(n.get("url")),
		OnFailure: text(n.get("on_failure")),
		Deadline:  d.duration(n.get("deadline"), "20ms", "stores", name, "deadline"),
		Nodes:     int(number(n.get("nodes"))),
		Prefix:    text(n.get("prefix")),
	}
	if lease := n.get("lease"); lease != nil {
		s.Lease = policy.Lease{On: lease.shape == mapping || truth(lease), Max: number(lease.get("max"))}
		s.Lease.Lifetime = d.duration(lease.get("lifetime"), "250ms", "stores", name, "lease", "lifetime")
		if m := lease.get("max"); m != nil && s.Lease.Max == 0 {
			d.wrong("a node that may hold no tokens cannot lease", "write at least 1, or take lease out", "stores", name, "lease", "max")
		}
	}
	if m := n.get("nodes"); m != nil && s.Nodes == 0 && m.shape == scalar {
		d.wrong("0 is not a number of nodes", "write how many share the store, at least 1", "stores", name, "nodes")
	}
	d.regions(&s, n.get("regions"))
	if n.get("url") != nil { // otherwise the schema reports that it is missing
		s.Place, s.Deadline = stores.Locate(s.URL), stores.Deadline(s)
		for _, p := range stores.Check(s) {
			d.wrong(p.Message, p.Fix, "stores", name, p.Field)
		}
	}
	return s
}

// duration parses a duration above 0.
func (d *decoder) duration(n *node, like string, path ...string) time.Duration {
	written := text(n)
	if written == "" {
		return 0
	}
	v, err := duration.Parse(written)
	if err != nil || v <= 0 {
		d.wrong(fmt.Sprintf("%q is not a duration above 0", written), "write one like "+like, path...)
		return 0
	}
	return v
}

// notKept says why a limit cannot be kept in a store that has refused it, and what to do.
func notKept(s *policy.Store, l weir.Limit, refused error) (why, fix string) {
	if errors.Is(refused, regions.ErrLimit) {
		return notDivided(s, l, refused)
	}
	for _, part := range weir.Parts(l) {
		p := rules.ParamsOf(part)
		if _, entered := p.(rules.Entered); p != nil && !entered && p.Kind().NoStore != "" {
			return fmt.Sprintf("no store keeps a %s: %s", p.Kind().Name, p.Kind().NoStore), "take store out"
		}
	}
	return "the limit cannot be kept in a store: " + refused.Error(), "change its parameters, or take store out"
}

// kept checks that each store can keep the limits and waiting rooms that name it. The policy's own
// check reports stores that do not exist.
func (d *decoder) kept(p *policy.Policy) {
	index := func(store string) int {
		return slices.IndexFunc(p.Stores, func(s policy.Store) bool { return s.Name == store })
	}
	for _, l := range p.Limits {
		if l.Store == "" || l.Limit == nil || d.spoilt[l.Name] {
			continue
		}
		if i := index(l.Store); i >= 0 {
			if err := stores.Keeps(p.Stores[i], l.Limit); err != nil {
				why, fix := notKept(&p.Stores[i], l.Limit, err)
				d.wrong(why, fix, "limits", l.Name, "store")
			}
			for _, plan := range l.Plans {
				if plan.Limit == nil {
					continue
				}
				if err := stores.Keeps(p.Stores[i], plan.Limit); err != nil {
					why, fix := notKept(&p.Stores[i], plan.Limit, err)
					d.wrong("the limit of this plan: "+why, fix, "limits", l.Name, "plans", plan.Plan)
				}
			}
		}
	}
	if i := index(p.Plans.APIKeys.Store); i >= 0 && !stores.KeepsRecords(p.Stores[i]) {
		d.wrong(fmt.Sprintf("the store %q keeps no API keys", p.Plans.APIKeys.Store), "name another store, or a file: api_keys: keys.yaml", "plans", "api_keys", "store")
	}
	for _, r := range p.Rooms {
		i := index(r.Store)
		switch {
		case i < 0:
		case p.Stores[i].Regions != nil:
			d.wrong(fmt.Sprintf("the store %q has regions, and a waiting room is not divided between regions", r.Store), "name a store without regions, or take store out", "waiting_rooms", r.Name, "store")
		case !stores.KeepsRooms(p.Stores[i]):
			d.wrong(fmt.Sprintf("the store %q keeps no waiting rooms", r.Store), "name a store whose URL begins with "+strings.Join(stores.RoomSchemes(), ":// or ")+"://, or take store out", "waiting_rooms", r.Name, "store")
		}
	}
}

func (d *decoder) limit(name string, n *node) (l policy.Limit) {
	l = policy.Limit{
		Name:      name,
		Key:       texts(n.get("key")),
		Cost:      text(n.get("cost")),
		Costs:     d.costs(n.get("cost"), "limits", name, "cost"),
		Exempt:    texts(n.get("exempt")),
		WarnAt:    text(n.get("warn_at")),
		OnMissing: text(n.get("on_missing")),
		Zone:      text(n.get("zone")),
		Store:     text(n.get("store")),
		OnFailure: text(n.get("on_failure")),
		Tag:       text(n.get("tag")),
		Shadow:    truth(n.get("shadow")),
		RollOut:   text(n.get("roll_out")),
		MaxKeys:   int(number(n.get("max_keys"))),
		WhenFull:  text(n.get("when_full")),
		Status:    int(number(n.get("status"))),
		Log:       text(n.get("log")),
	}
	if d.complete != nil {
		defer func() { d.complete(d, &l) }()
	}
	var kinds []string
	for _, k := range policy.Algorithms() {
		if n.get(k) != nil {
			kinds = append(kinds, k)
		}
	}
	switch len(kinds) {
	case 0:
		return l // the policy's own check reports it
	case 1:
	default:
		d.wrong(fmt.Sprintf("the limit has %s", strings.Join(kinds, " and ")), "keep one of them", "limits", name, kinds[1])
		d.spoilt[name] = true
	}
	values := map[string]any{}
	for _, f := range fields(n.get(kinds[0])) {
		if f.value.shape != scalar || !slices.Contains(policy.Fields(kinds[0]), f.name) {
			d.spoilt[name] = true // already reported
			continue
		}
		values[f.name] = f.value.value
	}
	var err error
	l.Limit, err = policy.ParseLimit(kinds[0], values)
	d.planLimits(&l, kinds[0], n.get("plans"))
	var wrong *policy.FieldError
	if errors.As(err, &wrong) {
		d.spoilt[name] = true
		// otherwise it is missing, which is already reported
		if n.get(kinds[0]).get(wrong.Field) != nil {
			d.wrong(wrong.Err.Error(), cmp.Or(wrong.Fix, fieldFix(n.get(kinds[0]), wrong.Field)), "limits", name, kinds[0], wrong.Field)
		}
	}
	return l
}

func (d *decoder) route(n *node, at string) policy.Route {
	return policy.Route{
		Match:    text(n.get("match")),
		Address:  texts(n.get("address")),
		Upstream: text(n.get("upstream")),
		Respond:  response(n.get("respond")),

		UpstreamPath: text(n.get("upstream_path")),
		AddHeaders:   addHeaders(n.get("add_headers")),
		Limits:       texts(n.get("limits")),
		Room:         text(n.get("waiting_room")),
		Refused:      d.refused(n.get("refused"), "routes", at, "refused"),
		Failed:       d.refused(n.get("failed"), "routes", at, "failed"),
		Waiting:      d.waiting(n.get("waiting"), "routes", at, "waiting"),

		UnderscoreHeaders: text(n.get("underscore_headers")),
		Parameters:        text(n.get("parameters")),
		Hold:              text(n.get("hold")),
		BufferRequest:     d.buffer(n.get("buffer_request"), "routes", at, "buffer_request"),
		Adaptive:          d.adaptive(n.get("adaptive"), "routes", at, "adaptive"),
		Priority:          text(n.get("priority")),
		Paths:             d.routePaths(n, at),
	}
}

// routePaths reads the paths of a route, with ignore_case beside them.
func (d *decoder) routePaths(n *node, at string) policy.Paths {
	p, short := paths(n.get("paths")), choice(n.get("ignore_case"))
	switch {
	case short == policy.Unset:
	case p.IgnoreCase == policy.Unset:
		p.IgnoreCase = short
	case p.IgnoreCase != short:
		d.wrong(fmt.Sprintf("ignore_case is %v here, and %v in paths", short, p.IgnoreCase), "remove one of them", "routes", at, "ignore_case")
	}
	return p
}

func paths(n *node) policy.Paths {
	return policy.Paths{
		IgnoreCase:          choice(n.get("ignore_case")),
		IgnoreTrailingSlash: choice(n.get("ignore_trailing_slash")),
		IgnoreExtension:     choice(n.get("ignore_extension")),
		IgnoreSemicolons:    choice(n.get("ignore_semicolons")),
		Ambiguous:           text(n.get("ambiguous")),
	}
}

func response(n *node) policy.Response {
	r := policy.Response{
		Status: int(number(n.get("status"))), Body: text(n.get("body")), File: text(n.get("file")), Redirect: text(n.get("redirect")), Type: text(n.get("type")),
	}
	if n != nil && !r.IsSet() {
		r.Status = http.StatusOK
	}
	return r
}

// addHeaders reads header fields by name. Each value is a text, or a map with the value.
func addHeaders(n *node) (all []policy.AddHeader) {
	for _, f := range fields(n) {
		h := policy.AddHeader{Name: f.name, Value: text(f.value)}
		if f.value.shape == mapping {
			h.Value, h.Always = text(f.value.get("value")), truth(f.value.get("always"))
		}
		all = append(all, h)
	}
	return all
}

func (d *decoder) refused(n *node, path ...string) policy.Refused {
	return policy.Refused{
		Stale:    d.duration(n.get("stale"), "10m", append(path, "stale")...),
		Upstream: text(n.get("upstream")),
		Status:   int(number(n.get("status"))),
		Body:     text(n.get("body")),
		File:     text(n.get("file")),
		Redirect: text(n.get("redirect")),
		Type:     text(n.get("type")),
	}
}

// The readers below return the zero value if the value is missing or has another type.

func text(n *node) string {
	if n == nil || n.shape != scalar {
		return ""
	}
	switch v := n.value.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func number(n *node) int64 {
	if n == nil {
		return 0
	}
	switch v := n.value.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

func truth(n *node) bool {
	if n == nil {
		return false
	}
	b, _ := n.value.(bool)
	return b
}

// choice reads a choice between true and false.
func choice(n *node) policy.Choice {
	switch {
	case n == nil || n.shape != scalar:
		return policy.Unset
	case truth(n):
		return policy.Yes
	}
	return policy.No
}

func fields(n *node) []field {
	if n == nil {
		return nil
	}
	return n.fields
}

func items(n *node) []*node {
	if n == nil {
		return nil
	}
	return n.items
}

// texts reads a list of texts. A single text counts as a list of one.
func texts(n *node) (all []string) {
	if n != nil && n.shape == scalar {
		return []string{text(n)}
	}
	for _, item := range items(n) {
		all = append(all, text(item))
	}
	return all
}
