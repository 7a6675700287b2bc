package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/probe"
)

// probeFlags are the flags of check that ask an upstream.
type probeFlags struct {
	url       string
	paths     []string
	headers   []string
	ownMethod bool
	requests  int
	within    time.Duration

	options probe.Options
}

func (p *probeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&p.url, "probe", "", "the URL of a running upstream: ask it which paths it serves alike, and report those that pass a limit")
	c.Flags().StringArrayVar(&p.paths, "probe-path", nil, "a path that exists, like /item/42, for the route that matches it; may be repeated")
	c.Flags().StringArrayVar(&p.headers, "probe-header", nil, "a header of all requests of the probe, like \"Cookie: session=1\"; may be repeated")
	c.Flags().BoolVar(&p.ownMethod, "probe-own-method", false, "also ask with the method of each route: a POST without a body may still buy something")
	c.Flags().IntVar(&p.requests, "probe-requests", 2000, "the most requests that the probe sends")
	c.Flags().DurationVar(&p.within, "probe-within", 2*time.Minute, "how long the probe may take")
}

// valid checks the flags.
func (p *probeFlags) valid(c *cobra.Command) error {
	if p.url == "" {
		for _, name := range []string{"probe-path", "probe-header", "probe-own-method", "probe-requests", "probe-within"} {
			if c.Flags().Changed(name) {
				return &usageError{fmt.Errorf("--%s needs an upstream: add --probe http://127.0.0.1:9000", name)}
			}
		}
		return nil
	}
	at, err := url.Parse(p.url)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return &usageError{fmt.Errorf("--probe %s is not a URL like http://127.0.0.1:9000", withoutCredentials(fmt.Errorf("%q", p.url)))}
	case strings.Trim(at.Path, "/") != "" || at.RawQuery != "":
		return &usageError{fmt.Errorf("--probe takes a URL without a path: write %s://%s --probe-path %s", at.Scheme, at.Host, at.EscapedPath())}
	case p.requests < 1 || p.within <= 0:
		return &usageError{fmt.Errorf("--probe-requests and --probe-within must be above 0")}
	}
	p.options = probe.Options{URL: at, Paths: p.paths, OwnMethod: p.ownMethod, Requests: p.requests, Header: http.Header{}}
	for _, path := range p.paths {
		if _, err := url.ParseRequestURI(path); err != nil || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#") {
			return &usageError{fmt.Errorf("--probe-path %q is not a path like /item/42", path)}
		}
	}
	for _, line := range p.headers {
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" || strings.ContainsAny(name, " \t") {
			return &usageError{fmt.Errorf("--probe-header %q is not like \"Cookie: session=1\"", line)}
		}
		p.options.Header.Add(name, strings.TrimSpace(value))
	}
	return nil
}

// probe asks the upstream, and prints what it serves alike.
func (p *probeFlags) probe(ctx context.Context, out io.Writer, file *policyfile.File) error {
	if p.url == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	at := p.options.URL.Redacted()
	results, sent, err := probe.Run(ctx, &file.Policy, p.options)
	failed := false
	fixes := file.Policy.FixPaths(needs(&file.Policy, results))
	for _, r := range results {
		failed = report(out, file, r, fixes[r.Route]) || failed
	}
	if err != nil {
		return fmt.Errorf("--probe %s: after %s: %w", at, counted(sent, "request"), err)
	}
	if failed {
		return errReported
	}
	fmt.Fprintf(out, "%s: %s was asked about %s with %s: no limit can be passed\n", file.Path, at, counted(len(results), "path"), counted(sent, "request"))
	return nil
}

// report prints what was found out about a route. It reports whether the route has a problem.
func report(out io.Writer, file *policyfile.File, r probe.Result, fix policy.PathsFix) (failed bool) {
	at := []string{"routes", strconv.Itoa(r.Route), "match"}
	byFate := map[policy.Fate][]string{}
	for _, a := range r.Alike {
		byFate[a.Fate] = append(byFate[a.Fate], a.Path)
	}
	var fates []string
	for _, f := range []policy.Fate{policy.FateCounted, policy.FateRefused, policy.FateNoRoute} {
		if len(byFate[f]) > 0 {
			fates = append(fates, fmt.Sprintf("%s: %s", map[policy.Fate]string{
				policy.FateCounted: "counted", policy.FateRefused: "refused", policy.FateNoRoute: "without a way to the upstream",
			}[f], strings.Join(byFate[f], " ")))
		}
	}
	if len(fates) > 0 {
		note := file.Wrong("", "", at...)
		fmt.Fprintf(out, "%s:%d:%d: note: the upstream serves like %s (by %s): %s\n", file.Path, note.Line, note.Col, r.Path, strings.Join(r.Methods, " and "), strings.Join(fates, "; "))
	}
	for _, problem := range problems(file, r, fix) {
		failed = true
		fmt.Fprintln(out, file.Wrong(problem.message, problem.fix, at...))
	}
	return failed
}

type probeProblem struct{ message, fix string }

// needs returns the settings that routes lack, by their index. A route was asked about once for each of
// its paths.
func needs(p *policy.Policy, results []probe.Result) map[int]policy.Paths {
	all := map[int]policy.Paths{}
	for _, r := range results {
		for _, a := range r.Alike {
			if a.Fate != policy.FatePasses {
				continue
			}
			if next, ok := a.Repair(all[r.Route], p, r.Route); ok {
				all[r.Route] = next
			}
		}
	}
	return all
}

// problems returns what lets requests pass the limits of a route: by the line that repairs its settings
// of paths, and by routes that are missing.
func problems(file *policyfile.File, r probe.Result, fix policy.PathsFix) (all []probeProblem) {
	route := &file.Policy.Routes[r.Route]
	var passing []string
	by := 0
	for _, a := range r.Alike {
		if a.Fate != policy.FatePasses {
			continue
		}
		if _, ok := a.Repair(policy.Paths{}, &file.Policy, r.Route); ok {
			by, passing = a.By, append(passing, a.Path)
			continue
		}
		add := fmt.Sprintf("- { match: %q", matchOf(route.Match, a))
		if route.Upstream != "" {
			add += fmt.Sprintf(", upstream: %s", route.Upstream)
		}
		if len(route.Limits) > 0 {
			add += fmt.Sprintf(", limits: [%s]", strings.Join(route.Limits, ", "))
		}
		if route.Room != "" {
			add += fmt.Sprintf(", waiting_room: %s", route.Room)
		}
		all = append(all, probeProblem{fmt.Sprintf("the upstream serves %s like %s (%s), and route %d takes it without the limits of this one: it needs a route above that",
			a.Path, r.Path, a.What, a.By+1), add + " }"})
	}
	if len(passing) > 0 {
		all = append([]probeProblem{{fmt.Sprintf("the upstream serves %s like %s, and route %d takes them without the limits of this one",
			strings.Join(passing, " and "), r.Path, by+1), file.Place(fix.Line, fix.At...)}}, all...)
	}
	if r.Unclear != "" {
		all = append(all, probeProblem{"cannot tell which paths pass this route: " + r.Unclear,
			"--probe-path /a/path/that/exists, --probe-header \"Cookie: ...\" or --probe-own-method"})
	}
	return all
}

// matchOf returns the match of a route for a variant.
func matchOf(match string, a probe.Alike) string {
	target := match[strings.LastIndexByte(match, ' ')+1:]
	i := strings.IndexByte(target, '/')
	return strings.TrimSuffix(match, target[i:]) + a.Match
}
