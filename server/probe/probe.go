// Package probe asks a running upstream which paths it serves alike, and says which of them pass the
// limits of a policy.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/policy"
)

// Options say how to ask the upstream.
type Options struct {
	URL   *url.URL // of the upstream, without a path
	Paths []string // that exist, for routes whose match alone names none
	// OwnMethod asks with the method of each route as well. A POST may buy something.
	OwnMethod bool
	Header    http.Header // of all requests, such as a cookie; Host is the route's, or that of URL
	Requests  int         // the most requests in all; default: 2000
	Timeout   time.Duration
	Transport http.RoundTripper // default: one with a single connection
}

// DefaultTimeout is how long a request may take.
const DefaultTimeout = 5 * time.Second

// A Result is what was found out about a route.
type Result struct {
	Route   int
	Path    string   // that the variants were compared with
	Methods []string // that told it from a path that does not exist
	Alike   []Alike
	Unclear string // why the route, or a variant, could not be judged; empty if all could
}

// Alike is a variant that the upstream serves like the path itself.
type Alike struct {
	policy.Variant
	Fate policy.Fate
	By   int // the route that takes it; -1 for none
}

// ErrTooMany means that the probe was stopped at Options.Requests.
var ErrTooMany = errors.New("the probe has sent as many requests as it may")

// Run asks the upstream about all routes that have limits or a waiting room, one request after
// another. It returns how many requests were sent.
func Run(ctx context.Context, p *policy.Policy, o Options) (all []Result, sent int, err error) {
	engine, err := policy.New(*p, policy.Options{MaxKeys: 1, Signals: new(signals.Reading)})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	a := newAsker(o)
	defer a.close()
	for i := range p.Routes {
		if !engine.Protects(i) || !o.leadsTo(p, p.Routes[i].Upstream) {
			continue
		}
		for _, sample := range o.samples(engine, i) {
			r := prober{engine: engine, asker: a, route: i, sample: sample, own: o.OwnMethod && p.Routes[i].Respond == policy.Response{}}
			r.target, r.named = sample.Path, engine.LastLiteral(i)
			if to := p.Routes[i].UpstreamPath; to != "" {
				r.named = strings.Count(strings.TrimSuffix(to, "/"), "/")
				r.target = (&url.URL{Path: engine.UpstreamTarget(i, sample.Path)}).EscapedPath()
			}
			result, err := r.run(ctx)
			if err != nil {
				return all, a.sent, err
			}
			all = append(all, result)
		}
	}
	return all, a.sent, nil
}

// leadsTo reports whether an upstream is the one that is asked. If no upstream of the policy has that
// address, it stands for all of them.
func (o *Options) leadsTo(p *policy.Policy, name string) bool {
	has := func(u *policy.Upstream) bool {
		urls := []string{u.URL}
		for _, t := range u.Targets {
			urls = append(urls, t.URL)
		}
		return slices.ContainsFunc(urls, func(text string) bool {
			u, err := url.Parse(text)
			return err == nil && strings.EqualFold(u.Host, o.URL.Host)
		})
	}
	known := false
	for i := range p.Upstreams {
		if is := has(&p.Upstreams[i]); is && p.Upstreams[i].Name == name {
			return true
		} else if is {
			known = true
		}
	}
	return !known
}

// samples returns a request for each of the paths that the route takes, or one for its match.
func (o *Options) samples(e *policy.Engine, route int) (all []policy.Request) {
	sample := e.Sample(route)
	for _, path := range o.Paths {
		r := sample
		if r.Path = path; e.Match(r).Route == route {
			all = append(all, r)
		}
	}
	if all == nil {
		all = append(all, sample)
	}
	return all
}

// prober asks about one route.
type prober struct {
	engine *policy.Engine
	asker  *asker
	route  int
	sample policy.Request
	target string // the path that the upstream gets for it
	own    bool   // asks with the route's own method, too
	named  int    // the segment of the target that the route names last, from 1; 0 for none
}

func (p *prober) run(ctx context.Context) (r Result, err error) {
	r = Result{Route: p.route, Path: p.target}
	p.asker.paths = formsOf(p.target, missing(p.target, p.named))
	variants := policy.Variants(p.target)
	if p.target != p.sample.Path { // upstream_path: the path of the upstream may be open itself
		match := p.engine.Policy().Routes[p.route].UpstreamPath
		own := policy.Variant{Path: p.target, What: "as the upstream has it", Match: match}
		variants = append([]policy.Variant{own}, variants...)
		if p.fate(own) == policy.FatePasses { // its variants are those of the route that it needs
			variants = variants[:1]
		}
	}
	if len(variants) == 0 {
		return r, nil
	}
	alike := map[string]bool{}
	ask := func(method string) (bool, error) {
		m, err := p.measure(ctx, method)
		if err != nil || !m.tells() {
			return false, err
		}
		var unclear []string
		for _, v := range variants {
			is, sure, err := p.isAlike(ctx, m, v)
			if err != nil {
				return false, err
			}
			if !sure && p.fate(v) == policy.FatePasses {
				unclear = append(unclear, v.Path)
			}
			alike[v.Path] = alike[v.Path] || is
		}
		if again, err := p.ask(ctx, method, p.target); err != nil || again.head != m.own.head {
			r.Unclear = "its responses changed while it was asked"
			return false, err
		}
		r.Methods = append(r.Methods, method)
		if len(unclear) > 0 {
			r.Unclear = fmt.Sprintf("responses to %s differ each time", strings.Join(unclear, ", "))
		}
		return true, nil
	}
	if err := p.askAll(ask); err != nil {
		return r, err
	}
	if len(r.Methods) == 0 && r.Unclear == "" {
		r.Unclear = fmt.Sprintf("the upstream responds to %s as to a path that does not exist", p.target)
	}
	for _, v := range variants {
		if alike[v.Path] {
			fate, by := p.engine.Fate(p.route, p.requestFor(v))
			r.Alike = append(r.Alike, Alike{v, fate, by})
		}
	}
	return r, nil
}

// askAll asks by OPTIONS, by HEAD or else GET, and by the route's own method if it may. OPTIONS alone
// is not enough, as it may be answered before a route is looked for.
func (p *prober) askAll(ask func(method string) (bool, error)) error {
	own := p.sample.Method
	if p.own && own != http.MethodGet && own != http.MethodHead && own != http.MethodOptions {
		if _, err := ask(own); err != nil {
			return err
		}
	}
	if _, err := ask(http.MethodOptions); err != nil {
		return err
	}
	told, err := ask(http.MethodHead)
	if err == nil && !told {
		_, err = ask(http.MethodGet)
	}
	return err
}

// requestFor is the request of a client for a variant.
func (p *prober) requestFor(v policy.Variant) policy.Request {
	r := p.sample
	r.Path = v.Path
	return r
}

func (p *prober) fate(v policy.Variant) policy.Fate {
	f, _ := p.engine.Fate(p.route, p.requestFor(v))
	return f
}

// measure is how an upstream responds to a path, and to one beside it that does not exist.
type measure struct {
	method       string
	own, unknown answer
	missing      string // the path that does not exist
	level        int    // at which bodies of the same path are equal; levels for none
}

// measure asks for the path twice, and for the one that does not exist.
func (p *prober) measure(ctx context.Context, method string) (m measure, err error) {
	m.method, m.missing = method, missing(p.target, p.named)
	if m.own, err = p.ask(ctx, method, p.target); err != nil {
		return m, err
	}
	again, err := p.ask(ctx, method, p.target)
	if err != nil {
		return m, err
	}
	if m.unknown, err = p.ask(ctx, method, m.missing); err != nil {
		return m, err
	}
	if again.head != m.own.head {
		m.unknown = m.own // it tells nothing
	}
	for m.level < levels && m.own.body[m.level] != again.body[m.level] {
		m.level++
	}
	return m, nil
}

// missing returns a path that surely does not exist: the same, with another text for one segment. That
// is the last one that the route names, because what a variable or a folder stands for may be anything.
func missing(path string, segment int) string {
	if path == "/" { // the root alone has no segment
		return "/weir-probe-of-a-missing-path"
	}
	parts := strings.Split(path, "/")
	if segment < 1 || segment >= len(parts) || parts[segment] == "" {
		segment = len(strings.Split(strings.TrimSuffix(path, "/"), "/")) - 1
	}
	parts[segment] = "weir-probe-of-a-missing-path"
	return strings.Join(parts, "/")
}

// tells reports whether the path can be told from one that does not exist.
func (m *measure) tells() bool {
	return m.own.status != 0 && (m.own.head != m.unknown.head || m.sameBody(m.own, m.own) && !m.sameBody(m.unknown, m.own))
}

// sameBody reports whether two bodies are equal, as far as those of one path are.
func (m *measure) sameBody(a, b answer) bool {
	return m.level < levels && a.body[m.level] == b.body[m.level]
}

// isAlike reports whether a variant is served like the path. A variant in the same form of a path that
// does not exist must be served in another way. sure is false if that could not be found out.
func (p *prober) isAlike(ctx context.Context, m measure, v policy.Variant) (is, sure bool, err error) {
	got, err := p.ask(ctx, m.method, v.Path)
	if err != nil || got.head != m.own.head || m.own.head == m.unknown.head && !m.sameBody(got, m.own) {
		return false, true, err
	}
	of := counterpart(v, p.target, m.missing)
	if of == "" {
		return true, true, nil
	}
	unknown, err := p.ask(ctx, m.method, of)
	switch {
	case err != nil:
		return false, false, err
	case unknown.head != m.own.head:
		return true, true, nil
	case m.level == levels:
		return false, false, nil
	}
	return m.sameBody(got, m.own) && !m.sameBody(unknown, m.own), true, nil
}

// counterpart returns the path in which the missing path is written as a variant of the path is;
// empty if there is none.
func counterpart(v policy.Variant, path, missing string) string {
	nth := 0
	for _, o := range policy.Variants(path) {
		if o.Path == v.Path {
			break
		}
		if o.What == v.What {
			nth++
		}
	}
	for _, o := range policy.Variants(missing) {
		if o.What == v.What {
			if nth == 0 {
				return o.Path
			}
			nth--
		}
	}
	return ""
}

// ask sends a request to the upstream.
func (p *prober) ask(ctx context.Context, method, path string) (answer, error) {
	host := p.sample.Host
	if strings.HasSuffix(host, ".invalid") { // the route is for any host
		host = ""
	}
	return p.asker.ask(ctx, method, host, path)
}
