package rls

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirflow/weir"
	rule "github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/endpoint"
	"github.com/weirflow/weir/server/envoy"
	"github.com/weirflow/weir/server/guard"
	"github.com/weirflow/weir/server/policyfile"
)

// rules are what decides about requests: the settings of the policy and the rules of Envoy's files.
// They are never changed.
type rules struct {
	policy.RLS
	file   *policyfile.File
	config *envoy.Config // nil without Envoy's files
	read   [sha256.Size]byte
	store  weir.Store // nil for counters in memory

	limits   map[string]bool                                 // those of the policy
	shown    map[*envoy.Rule]*pb.RateLimitResponse_RateLimit // as responses have them
	metadata map[*envoy.Rule]*structpb.Struct                // of rules that have some
}

// Check returns what in a valid policy the face cannot serve.
func Check(file *policyfile.File) (wrong []policyfile.Problem) {
	wrong = endpoint.Check(file, name)
	o, _ := file.Policy.Listen.Endpoint(name)
	r := o.RLS
	if r.HTTP != "" && !guard.IsLoopback(r.HTTP) && !o.Insecure {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("listen.rls.http: %s is not a loopback address, and any program on the network could use up limits", r.HTTP),
			"listen on 127.0.0.1, or write insecure: true if only machines that you trust reach the address", "listen", name, "http"))
	}
	if r.Store != "" && !hasStore(&file.Policy, r.Store) {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("there is no store %q", r.Store), "name one of stores", "listen", name, "store"))
	}
	if r.Envoy == "" {
		if len(file.Policy.Limits) == 0 && len(file.Policy.Routes) == 0 {
			wrong = append(wrong, file.Wrong("listen.rls has no rules, and the policy no limits that descriptors could name",
				"add limits, or envoy: FILE, a file or a folder of envoyproxy/ratelimit's YAML", "listen", name))
		}
		return wrong
	}
	if file.Untrusted {
		return wrong
	}
	l, err := load(file, r)
	var invalid *policyfile.InvalidError
	switch {
	case errors.As(err, &invalid):
		return append(wrong, invalid.Problems...)
	case err != nil:
		return append(wrong, file.Wrong(fmt.Sprintf("listen.rls.envoy: %v", err), "name a file or a folder of envoyproxy/ratelimit's YAML", "listen", name, "envoy"))
	}
	return append(wrong, wrongLimits(l.file, l.config)...)
}

// Complete adds to a policy the limits that Envoy's files have.
func Complete(file *policyfile.File) (*policyfile.File, error) {
	o, _ := file.Policy.Listen.Endpoint(name)
	if o.RLS.Envoy == "" || file.Untrusted {
		return file, nil
	}
	l, err := load(file, o.RLS)
	return l.file, err
}

// CountRules returns how many rules Envoy's files have that a policy names. It names none if ok is false.
func CountRules(file *policyfile.File) (n int, ok bool) {
	o, _ := file.Policy.Listen.Endpoint(name)
	if o.RLS.Envoy == "" || file.Untrusted {
		return 0, false
	}
	l, err := load(file, o.RLS)
	if err != nil {
		return 0, false
	}
	return len(l.config.Rules()), true
}

func hasStore(p *policy.Policy, store string) bool {
	for _, s := range p.Stores {
		if s.Name == store {
			return true
		}
	}
	return false
}

// wrongLimits finds rules whose limit the policy does not have, or whose open values are no key of it: each
// request would be an error, which Envoy lets pass by default.
func wrongLimits(file *policyfile.File, config *envoy.Config) (wrong []policyfile.Problem) {
	for _, r := range config.Rules() {
		if r.Limit == "" {
			continue
		}
		at := slices.IndexFunc(file.Policy.Limits, func(l policy.Limit) bool { return l.Name == r.Limit })
		if at < 0 {
			wrong = append(wrong, r.At.Wrong(fmt.Sprintf("the policy has no limit %q", r.Limit), "add it to limits of the policy, or correct the name"))
			continue
		}
		l := &file.Policy.Limits[at]
		_, enters := rule.PlacesOf(l.Limit)
		switch {
		case enters:
			wrong = append(wrong, r.At.Wrong(fmt.Sprintf("%q is a concurrency: requests enter and leave it, and nothing can be taken from it", r.Limit),
				"name a limit with another algorithm, such as a token_bucket"))
		case len(l.Key) != len(r.Open):
			wrong = append(wrong, r.At.Wrong(fmt.Sprintf("the key of %q has %s, and %s leaves %s open", r.Limit, listed(l.Key, "part"), r.Path, listed(r.Open, "value")), keyFix(l, r)))
		}
	}
	return wrong
}

// listed counts texts and lists them.
func listed(all []string, what string) string {
	switch len(all) {
	case 0:
		return "no " + what
	case 1:
		return fmt.Sprintf("1 %s (%s)", what, all[0])
	}
	return fmt.Sprintf("%d %ss (%s)", len(all), what, strings.Join(all, ", "))
}

// keyFix says how the open values of a rule become a key of its limit.
func keyFix(l *policy.Limit, r *envoy.Rule) string {
	if len(r.Open) < len(l.Key) {
		return "leave one value open for each part, in their order: a descriptor without value:, or with a star in it, and the last one with limit: inside descriptors: of those before it"
	}
	if len(l.Key) == 0 {
		return "write value: for each descriptor from the first to this one, or give the limit a key of as many parts as values are open"
	}
	return fmt.Sprintf("write value: for %d of these descriptors, or give the limit a key of %d parts", len(r.Open)-len(l.Key), len(r.Open))
}

// nodes returns how many nodes share the store: the number that the store reported last, or `nodes` of
// the policy before the first report.
func (r *rules) nodes() int {
	if s, ok := r.store.(interface{ Nodes() int }); ok {
		return s.Nodes()
	}
	return 1
}

// loaded is what Envoy's files have.
type loaded struct {
	config *envoy.Config
	file   *policyfile.File // the policy, with the limits of the files
	read   [sha256.Size]byte
}

// load reads the rules that a policy names.
func load(file *policyfile.File, r policy.RLS) (l loaded, err error) {
	files, err := envoy.Load(file.Beside(r.Envoy))
	if err != nil {
		return l, err
	}
	return parse(file, r, files)
}

// parse reads rules of files.
func parse(file *policyfile.File, r policy.RLS, files []envoy.File) (l loaded, err error) {
	l.read = hash(files)
	if l.config, err = envoy.Parse(files, r.MergeDomains); err != nil {
		return l, err
	}
	l.file, err = l.config.AddTo(file, files, r.Store)
	return l, err
}

// sameLimits reports whether two policies have the same limits of Envoy's files.
func sameLimits(a, b *policyfile.File) bool { return reflect.DeepEqual(a.Elsewhere(), b.Elsewhere()) }

// hash changes with the names and the contents of files.
func hash(files []envoy.File) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s %d\n", strconv.Quote(f.Name), len(f.Data))
		h.Write(f.Data)
	}
	h.Sum(sum[:0])
	return sum
}

// newRules reads the rules of a policy.
func newRules(file *policyfile.File, stores map[string]weir.Store) (*rules, error) {
	o, _ := file.Policy.Listen.Endpoint(name)
	r := &rules{RLS: o.RLS, file: file, store: stores[o.RLS.Store]}
	r.limits = map[string]bool{}
	for _, l := range file.Policy.Limits {
		r.limits[l.Name] = true
	}
	if r.Envoy == "" {
		return r, nil
	}
	l, err := load(file, r.RLS)
	if err != nil {
		return nil, err
	}
	if !sameLimits(l.file, file) {
		return nil, fmt.Errorf("listen.rls.envoy: the limits in %s changed while they were read: reload again", r.Envoy)
	}
	r.config, r.read = l.config, l.read
	if wrong := wrongLimits(file, r.config); len(wrong) > 0 {
		return nil, &policyfile.InvalidError{Problems: wrong}
	}
	r.show()
	return r, nil
}

// show makes the limits of all rules as responses have them: they are the same in each.
func (r *rules) show() {
	r.shown, r.metadata = map[*envoy.Rule]*pb.RateLimitResponse_RateLimit{}, map[*envoy.Rule]*structpb.Struct{}
	for _, rule := range r.config.Rules() {
		if rule.Metadata != nil {
			r.metadata[rule], _ = structpb.NewStruct(rule.Metadata) // its values are of JSON
		}
		if rule.Unit != 0 {
			r.shown[rule] = &pb.RateLimitResponse_RateLimit{Name: rule.Name, RequestsPerUnit: rule.Requests, Unit: protoUnits[rule.Unit]}
		}
	}
}

// protoUnits are the units of responses and of limits in requests, which have the same numbers.
var protoUnits = [...]pb.RateLimitResponse_RateLimit_Unit{
	0, pb.RateLimitResponse_RateLimit_SECOND, pb.RateLimitResponse_RateLimit_MINUTE, pb.RateLimitResponse_RateLimit_HOUR, pb.RateLimitResponse_RateLimit_DAY,
	pb.RateLimitResponse_RateLimit_WEEK, pb.RateLimitResponse_RateLimit_MONTH, pb.RateLimitResponse_RateLimit_YEAR,
}

// Prepare reads the rules of the next policy.
func (f *Face) Prepare(_ context.Context, _ *active.Snapshot, next active.Candidate) (active.Change, error) {
	r, err := newRules(next.File, next.Stores)
	f.metrics.loaded(err)
	return &rulesChange{f, r}, err
}

// rulesChange is the rules of another policy.
type rulesChange struct {
	face  *Face
	rules *rules
}

// Commit puts them in force.
func (c *rulesChange) Commit(*active.Snapshot) { c.face.rules.Store(c.rules) }

// Discard has nothing to give back.
func (c *rulesChange) Discard() {}

// reread reads the rules again if their files have changed. Files that are not valid change nothing,
// which is logged once.
func (f *Face) reread() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.rules.Load()
	if now.Envoy == "" {
		return
	}
	files, err := envoy.Load(now.file.Beside(now.Envoy))
	if err == nil && hash(files) == now.read {
		return
	}
	var l loaded
	if err == nil {
		l, err = parse(now.file, now.RLS, files)
	}
	if err == nil {
		if wrong := wrongLimits(l.file, l.config); len(wrong) > 0 {
			err = &policyfile.InvalidError{Problems: wrong}
		}
	}
	if err == nil && !sameLimits(l.file, now.file) {
		if err = f.policy.Refresh(context.Background()); err == nil { // which prepares this face, too
			f.log.Info("rules reloaded, with limits in them", "listen", name, "rules", len(l.config.Rules()))
			return
		}
	}
	if err != nil {
		f.metrics.stale(f.log, err)
		return
	}
	f.metrics.loaded(nil)
	next := *now
	next.config, next.read = l.config, l.read
	next.show()
	if f.rules.CompareAndSwap(now, &next) { // otherwise a new policy has replaced the rules meanwhile
		f.log.Info("rules reloaded", "listen", name, "rules", len(next.config.Rules()))
	}
}
