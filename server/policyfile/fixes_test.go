package policyfile

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// TestFixesCanBePasted: wrong policies, the exact problem of each, and the policy after its fixes were pasted, which is valid.
func TestFixesCanBePasted(t *testing.T) {
	const limit = "limits:\n  api:\n    key: client.ip\n    token_bucket: { rate: 10/s, burst: 20 }\n"
	const route = "routes:\n  - match: /\n    limits: [api]\n"
	for name, c := range map[string]struct {
		text  string
		wants []string
	}{
		"parameters beside the algorithm": {
			"limits:\n  api:\n    key: client.ip\n    token_bucket:\n    rate: 10/s\n    burst: 20\n" + route,
			[]string{"p:5:5: error: rate, burst: these belong to token_bucket: indent them further than it\n\tfix: token_bucket: { rate: 10/s, burst: 20 }"},
		},
		"a parameter beside the algorithm": {
			"limits:\n  api:\n    key: client.ip\n    token_bucket: { burst: 20 }\n    rate: 10/s\n" + route,
			[]string{"p:5:5: error: rate: these belong to token_bucket: indent them further than it\n\tfix: token_bucket: { burst: 20, rate: 10/s }"},
		},
		"a text for a list":  {limit + "routes:\n  - match: /\n    limits: api\n", []string{"p:7:13: error: this is a text, and must be a list\n\tfix: limits: [api]"}},
		"a text for a count": {strings.Replace(limit, "burst: 20", `burst: "20"`, 1) + route, []string{"p:4:40: error: this is a text, and must be a whole number\n\tfix: burst: 20"}},
		"a port for an address": {
			"listen:\n  gateway: 8080\n" + limit + "upstreams: { up: { url: http://127.0.0.1:9 } }\nroutes:\n  - match: /\n    upstream: up\n    limits: [api]\n",
			[]string{"p:2:12: error: this is a number, and must be a text or a list or a map\n\tfix: gateway: \":8080\""},
		},
		"a port for admin":          {"listen:\n  admin: 9090\n" + limit + route, []string{"p:2:10: error: this is a number, and must be a text\n\tfix: admin: \":9090\""}},
		"a rate without a duration": {strings.Replace(limit, "10/s", "10", 1) + route, []string{"p:4:27: error: a rate is a count and a duration, like 10/s or 10/m: the duration is missing\n\tfix: rate: 10/s"}},
		"a missing parameter":       {strings.Replace(limit, ", burst: 20", "", 1) + route, []string{"p:4:5: error: burst is missing: How many requests may come at once (the bucket's capacity); at least 1\n\tfix: burst: 20"}},
		"a path without its slash":  {limit + "routes:\n  - match: GET api/x\n    limits: [api]\n", []string{"p:6:12: warning: \"GET api/x\" matches requests for the host api: a path begins with /\n\tfix: match: GET /api/x"}},
		"a misspelt algorithm":      {strings.Replace(limit, "token_bucket", "token_buket", 1) + route, []string{"p:4:5: error: there is no key \"token_buket\" here\n\tfix: did you mean token_bucket?"}},
		"a misspelt limit":          {limit + strings.Replace(route, "[api]", "[apii]", 1), []string{"p:7:14: error: there is no limit \"apii\"\n\tfix: did you mean \"api\"?"}},
		"yes for true":              {limit + "    shadow: yes\n" + route, []string{"p:5:13: error: this is a text, and must be true or false\n\tfix: shadow: true"}},
		"a number for a duration":   {strings.Replace(limit, "token_bucket: { rate: 10/s, burst: 20 }", "sliding_log: { limit: 5, window: 60 }", 1) + route, []string{"p:4:38: error: this is a number, and must be a text\n\tfix: window: 60s"}},
		"a misspelt parameter":      {strings.Replace(limit, "burst", "brust", 1) + route, []string{"p:4:33: error: there is no key \"brust\" here\n\tfix: did you mean burst?"}},
	} {
		text := c.text
		f, err := Parse("p", []byte(text))
		var invalid *InvalidError
		if err != nil && !errors.As(err, &invalid) {
			t.Fatal(err)
		}
		var got []string
		for _, p := range f.Problems {
			got = append(got, p.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.wants, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.wants, "\n"))
			continue
		}
		text = pasted(text, f.Problems[len(f.Problems)-1])
		f, err = Parse("p", []byte(text))
		if err != nil || len(f.Problems) > 0 {
			t.Errorf("%s: pasted, it is\n%s\n%v %v", name, text, err, f.Problems)
		}
	}
}

var didYouMean = regexp.MustCompile(`^did you mean "?([^"?]+)"?\?$`)

// pasted does with a fix what a reader does: a word in place of another; or KEY: VALUE in place of what the key has, in that line or in the one
// above that begins the map; or in the map that lacks the key.
func pasted(text string, p Problem) string {
	lines := strings.Split(text, "\n")
	line := &lines[p.Line-1]
	if word := didYouMean.FindStringSubmatch(p.Fix); word != nil {
		rest := (*line)[p.Col-1:]
		end := strings.IndexAny(rest, ":], ")
		*line = (*line)[:p.Col-1] + word[1] + rest[end:]
		return strings.Join(lines, "\n")
	}
	key, _, _ := strings.Cut(p.Fix, ":")
	value := regexp.MustCompile(`\b` + key + `:( *(\{[^}]*\}|\[[^\]]*\]|"[^"]*"|[^,}]+))?`)
	for at := p.Line - 1; at >= max(p.Line-3, 0); at-- {
		if found := value.FindStringIndex(lines[at]); found != nil {
			lines[at] = lines[at][:found[0]] + p.Fix + strings.TrimPrefix(lines[at][found[1]:], "\n")
			if at < p.Line-1 { // what was below it without belonging to it
				for at++; at < len(lines) && strings.Contains(p.Fix, strings.TrimSpace(lines[at])) && strings.TrimSpace(lines[at]) != ""; {
					lines = append(lines[:at], lines[at+1:]...)
				}
			}
			return strings.Join(lines, "\n")
		}
	}
	brace := strings.Index(*line, "{")
	*line = (*line)[:brace+1] + " " + p.Fix + "," + (*line)[brace+1:]
	return strings.Join(lines, "\n")
}
