package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestSpellings: whatever the match and the key of a limit are, Check either warns, or each spelling
// of a path that upstreams commonly serve alike has the counter of that path. With the fix there is no
// warning, no route has lost its requests, and the second is true.
func TestSpellings(t *testing.T) {
	raced.Skip(t)
	warned := 0
	for _, match := range []string{"/", "/api/", "/item/{id}", "/item/{id}/buy", "/f/{id...}", "/st*", "/pay", "/{$}", "GET *.a.test/x/"} {
		for _, key := range [][]string{{"path"}, {"path.id"}, {"client.ip", "path"}, {"method"}} {
			if slices.Contains(key, "path.id") && !strings.Contains(match, "{id") {
				continue
			}
			for _, others := range []string{"", "/Item/{id}", "/API/", "/item/A", "/X/", "/"} {
				for _, own := range []Paths{{}, {IgnoreCase: Yes}, {IgnoreTrailingSlash: No, IgnoreSemicolons: Yes}} {
					p := Policy{
						Limits: []Limit{{Name: "one", Key: key, Limit: weir.FixedWindow{Limit: 1, Window: 1 << 50}}},
						Routes: []Route{{Match: match, Limits: []string{"one"}, Paths: own}},
					}
					if others != "" {
						p.Routes = append(p.Routes, Route{Match: others})
					}
					name := fmt.Sprintf("%s by %v, then %q, %s", match, key, others, own.Text())
					before := p.Check()
					fix := pathsOf(before)
					if fix != "" {
						warned++
						p.Routes[0].Paths = parsePaths(t, fix)
						for _, after := range p.Check() {
							if strings.Contains(after.Message, "never reached") && strings.Contains(fmt.Sprint(before), "pass the limit") {
								continue // that route was the way past the limit
							}
							if !slices.ContainsFunc(before, func(b Problem) bool { return b.Message == after.Message }) || strings.HasPrefix(after.Message, "requests for ") {
								t.Errorf("%s: with %s: %v", name, fix, after)
							}
						}
					}
					checkSpellings(t, name, &p)
				}
			}
		}
	}
	if warned < 100 {
		t.Errorf("only %d policies have a warning", warned)
	}
}

// pathsOf returns the fix of the warnings about paths; empty for none.
func pathsOf(all []Problem) string {
	for _, p := range all {
		if strings.HasPrefix(p.Message, "requests for ") && p.Fix != "" {
			return p.Fix
		}
	}
	return ""
}

// checkSpellings sends spellings of a path to the only limit of a policy, which admits one request.
func checkSpellings(t *testing.T, name string, p *Policy) {
	t.Helper()
	c := checker{Policy: p}
	pattern := c.patterns()[0]
	path := pattern.deepSample()
	said := pattern.paths
	for _, v := range Variants(path) {
		switch {
		case slices.Contains([]string{"with a doubled slash", "with the segment .", "with the segment ..", "with an encoded dot", "with an encoded letter"}, v.What):
			// never another key
		case v.Setting == "" || v.Setting == ignoreExtension, *said.choice(v.Setting) == No:
			continue
		case v.Setting == ignoreCase && strings.Contains(fmt.Sprint(p.Limits[0].Key), "path."):
			continue // the case of a variable is kept
		}
		e, err := New(*p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		first, second := pattern.sampleRequest(path).Request, pattern.sampleRequest(v.Path).Request
		if m := e.Match(second); e.Match(first).Route == 0 && m.Route == 0 && !m.Ambiguous {
			a, b := e.Decide(first), e.Decide(second)
			if a.Outcome != Allow || b.Outcome != Deny {
				t.Errorf("%s: %s is %v, then %s is %v", name, path, a.Outcome, v.Path, b.Outcome)
			}
		}
		e.Close()
	}
}

// parsePaths parses a line that Paths.Text has written.
func parsePaths(t *testing.T, line string) (p Paths) {
	t.Helper()
	line = strings.TrimSuffix(strings.TrimPrefix(line, "paths: { "), " }")
	for _, setting := range strings.Split(line, ", ") {
		name, value, _ := strings.Cut(setting, ": ")
		*p.choice(name) = map[string]Choice{"true": Yes, "false": No}[value]
	}
	return p
}
