package policy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirflow/weir"
)

var (
	slashless     = Paths{IgnoreTrailingSlash: Yes}
	caseless      = Paths{IgnoreCase: Yes}
	extensionless = Paths{IgnoreExtension: Yes}
	semicolonless = Paths{IgnoreSemicolons: Yes}
	loose         = Paths{IgnoreTrailingSlash: Yes, IgnoreCase: Yes, IgnoreExtension: Yes, IgnoreSemicolons: Yes}
)

// TestPaths: what a match takes for the same path.
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		match, path string
		paths       Paths
		want        bool
	}{
		{"/a", "/a/", slashless, true},
		{"/a", "/a//", slashless, true},
		{"/a", "/a/b", slashless, false},
		{"/a", "/a/b/", slashless, false},
		{"/a", "/", slashless, false},
		{"/a/", "/a", slashless, true},
		{"/a/", "/ab", slashless, false},
		{"/a/", "/b", slashless, false},
		{"/a/b/", "/a", slashless, false},
		{"/a/{$}", "/a", slashless, true},
		{"/a/{$}", "/a/b", slashless, false},
		{"/a/{x}", "/a/1/", slashless, true},
		{"/a/{x}", "/a/", slashless, false},
		{"/a/{x...}", "/a", slashless, true},
		{"/a/b*", "/a", slashless, false},
		{"/a/*", "/a", slashless, true},
		{"/{$}", "/", slashless, true},
		{"/a", "/a/.", slashless, true},
		{"/Pay/x", "/pAY/X", caseless, true},
		{"/pay", "/PAY/", caseless, false},
		{"/pay", "/P%41Y", caseless, true},
		{"/pay", "/ｐay", caseless, false},
		{"/straße/x", "/STRAßE/X", caseless, true},
		{"/kg", "/\u212ag", caseless, true},
		{"/kg*", "/\u212ag/x", caseless, true},
		{"/kg*", "/\u212a", caseless, false},
		{"/PAY*", "/payment", caseless, true},
		{"/pay*", "/paX", caseless, false},
		{"/pay*", "/pa", caseless, false},
		{"/pay", "/pay.json", extensionless, true},
		{"/pay", "/pay.a.b", extensionless, true},
		{"/pay", "/pay.", extensionless, true},
		{"/pay", "/payx.json", extensionless, false},
		{"/pay", "/pay.json/", extensionless, false},
		{"/pay/x", "/pay.json/x", extensionless, false},
		{"/pay/", "/pay.json", Paths{IgnoreExtension: Yes, IgnoreTrailingSlash: Yes}, false},
		{"/a.b", "/a.b.json", extensionless, true},
		{"/a.b", "/a.json", extensionless, false},
		{"/pay", "/pay;x=1", semicolonless, true},
		{"/pay/x", "/pay;x=1;y/x", semicolonless, true},
		{"/pay", "/;x/pay", semicolonless, true},
		{"/pay", "/x/..;a/pay", semicolonless, true},
		{"/pay", "/pay%3Bx", semicolonless, false},
		{"/pay", "/PAY.json;x=1/", loose, true},
		{"/api/", "/API;x", loose, true},
		{"/a/{x}/b", "/A/1/B/", loose, true},
	} {
		p, err := parsePattern(c.match)
		if err != nil {
			t.Fatal(err)
		}
		plain := p
		p.paths = c.paths
		r := &request{Request: Request{Method: "GET", Path: c.path}}
		if got := p.matches(r); got != c.want {
			t.Errorf("%q with %s matches %s: %v", c.match, c.paths.Text(), c.path, got)
		}
		if c.want && plain.matches(&request{Request: Request{Method: "GET", Path: c.path}}) && c.path != "/" {
			t.Errorf("%q matches %s without the settings", c.match, c.path)
		}
	}
	p, _ := parsePattern("POST /pay")
	if !p.matches(&request{Request: Request{Method: "post", Path: "/pay"}}) {
		t.Error("a method in small letters passes")
	}
}

// TestPathKeys: a key with the path counts all paths as one that the upstream serves alike.
func TestPathKeys(t *testing.T) {
	for _, c := range []struct {
		paths      Paths
		path, want string
		id         string
	}{
		{Paths{}, "/Item/A1.json/", "/Item/A1.json/", ""},
		{slashless, "/item/A1/", "/item/A1", "A1"},
		{caseless, "/Item/A1", "/item/a1", "A1"},
		{extensionless, "/item/A1.json", "/item/A1", "A1"},
		{extensionless, "/item/A1.x.json", "/item/A1", "A1"},
		{semicolonless, "/item/A1;x=1", "/item/A1", "A1"},
		{loose, "/ITEM;y/A1.json;x=1/", "/item/a1", "A1"},
	} {
		p, err := parsePattern("/item/{id}")
		if err != nil {
			t.Fatal(err)
		}
		p.paths = c.paths
		r := &request{Request: Request{Method: "GET", Path: c.path}, pattern: &p}
		if got := r.onePath(); got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.path, c.paths.Text(), got, c.want)
		}
		if id, _ := r.variable("id"); id != c.id {
			t.Errorf("%s with %s: {id} is %q", c.path, c.paths.Text(), id)
		}
	}
}

// TestUpstreamPathOfVariants: what the upstream gets in place of the part that the match names, however
// that is written.
func TestUpstreamPathOfVariants(t *testing.T) {
	for _, c := range []struct{ match, to, path, want string }{
		{"/api/", "/v2/", "/API/Users", "/v2/Users"},
		{"/api/", "/v2/", "/api", "/v2/"},
		{"/pay", "/v2/pay", "/PAY/", "/v2/pay/"},
		{"/pay", "/v2/pay", "/Pay.json", "/v2/pay.json"},
		{"/pay", "/v2/pay", "/pay;x=1", "/v2/pay"},
		{"/pa*", "/v2/x", "/PAY", "/v2/xY"},
		{"/", "/v2/", "/x", "/v2/x"},
	} {
		e, err := New(Policy{Upstreams: []Upstream{{Name: "u", URL: "http://127.0.0.1:9"}}, Routes: []Route{{Match: c.match, Upstream: "u", UpstreamPath: c.to, Paths: loose}}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m := e.Match(Request{Method: "GET", Path: c.path}); m.Route != 0 {
			t.Errorf("%s does not match %s", c.match, c.path)
		}
		if got := e.UpstreamTarget(0, c.path); got != c.want {
			t.Errorf("%s to %s: %s becomes %s, want %s", c.match, c.to, c.path, got, c.want)
		}
	}
}

// shopPolicy has a limited route, a limited folder and a limited route with a variable, a folder without limits above
// a limit for the rest, and a refusal.
func shopPolicy(paths Paths) Policy {
	return Policy{
		Paths:  paths,
		Limits: []Limit{{Name: "pay", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}}, {Name: "seen", Shadow: true, Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}}},
		Routes: []Route{
			{Match: "/pay", Limits: []string{"pay"}},
			{Match: "/api/", Limits: []string{"pay"}},
			{Match: "/item/{id}", Limits: []string{"pay"}},
			{Match: "/seen", Limits: []string{"seen"}},
			{Match: "/admin/", Respond: Response{Status: 403}},
			{Match: "free.test/static/"},
			{Match: "free.test/", Limits: []string{"pay"}},
			{Match: "/"},
		},
	}
}

// TestAmbiguousPaths: a path that an upstream may read as one of a route that protects more.
func TestAmbiguousPaths(t *testing.T) {
	for _, c := range []struct {
		host, path string
		paths      Paths
		want       bool
	}{
		{"", "/pay", Paths{}, false},
		{"", "/x/../pay", Paths{}, false}, // it is counted, and no other reading protects more
		{"", "//pay", Paths{}, false},
		{"", "/pay%2f", Paths{}, false}, // /pay/: a matter of ignore_trailing_slash
		{"", "/x%255c..%255cpay", Paths{}, true},
		{"", "/pay%3fx", Paths{}, true}, // /pay?x behind a proxy that decodes
		{"", "/pay%23x", Paths{}, true},
		{"", "/x%3f", Paths{}, false},
		{"", "/pay;x", Paths{}, true},
		{"", "/pay;x", Paths{IgnoreSemicolons: No}, false},
		{"", "/pay;x", Paths{IgnoreSemicolons: Yes}, false},
		{"", "/pay;x", Paths{Ambiguous: AmbiguousAllow}, false},
		{"", "/x/..;/pay", Paths{}, true},
		{"", "/pay.", Paths{}, true},
		{"", "/pay%20", Paths{}, true},
		{"", "/pay%00.png", Paths{}, true},
		{"", "/pay%5c", Paths{}, false}, // the same for IIS
		{"", "/pay%5c", Paths{IgnoreTrailingSlash: Yes}, true},
		{"", "/x%5c..%5cpay", Paths{}, true},
		{"", `/x\..\pay`, Paths{}, true},
		{"", "/p%2561y", Paths{}, true},
		{"", "/api/..%2fx", Paths{}, true}, // Express takes it for one below /api
		{"", "/api/../x", Paths{}, true},
		{"", "/api/x/../y", Paths{}, false},
		{"", "/item/a%2fb", Paths{}, true},
		{"", "//x/pay", Paths{}, true}, // new URL of Node takes x for a host
		{"", `/\x/pay`, Paths{}, true},
		{"", "//x/item/7", Paths{}, true},
		{"", "//item/pay", Paths{}, false}, // both are limited alike
		{"", "//x/y", Paths{}, false},
		{"", "/seen;x", Paths{}, false}, // a dry run refuses nothing
		{"", "/admin;x/", Paths{}, true},
		{"", "/files/caf%C3%A9", Paths{}, false},
		{"", "/files/%41b;c=%2f./x", Paths{}, false},
		{"free.test", "/static/x", Paths{}, false},
		{"free.test", "/%73tatic/x", Paths{}, true}, // Express takes it for another path than /static
		{"free.test", "//static/x", Paths{}, true},  // for WSGI, too
		{"free.test", "/static//x", Paths{}, false},
		{"free.test", "/static/../x", Paths{}, false},
		{"free.test", "/x/../static/", Paths{}, true},
		{"", "/a%2fb;c%5cd%20/e%2541", Paths{}, true}, // too many ways to read it
		{"", "/a%2fb;c%5cd%20/e%2541", Paths{Ambiguous: AmbiguousAllow}, false},
		{"", "/a%2fb" + strings.Repeat("b", 10_000), Paths{}, false},
		{"", "/a%2fb" + strings.Repeat("b", 20_000), Paths{}, true},
	} {
		e, err := New(shopPolicy(c.paths), Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Method: "GET", Host: c.host, Path: c.path, Header: http.Header{}}
		if m := e.Match(r); m.Ambiguous != c.want {
			t.Errorf("%s%s with %s: ambiguous is %v, route %d", c.host, c.path, c.paths.Text(), m.Ambiguous, m.Route)
		}
		if v := e.Decide(r); (v.Outcome == Invalid) != c.want {
			t.Errorf("%s%s: %v", c.host, c.path, v.Outcome)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDoubledSlashesBesideDots: an upstream that resolves dots and keeps doubled slashes reads another
// path than the gateway. Doubled slashes alone are served wherever some limit applies.
func TestDoubledSlashesBesideDots(t *testing.T) {
	bucket := weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}
	e, err := New(Policy{
		Paths:  Paths{IgnoreTrailingSlash: Yes},
		Limits: []Limit{{Name: "pay", Limit: bucket}, {Name: "item", Limit: bucket}, {Name: "all", Limit: bucket}},
		Rooms:  []WaitingRoom{{Name: "sale", Inside: 1}},
		Routes: []Route{
			{Match: "/pay", Limits: []string{"pay", "all"}}, {Match: "/sale", Room: "sale", Limits: []string{"all"}}, {Match: "/shop/item", Limits: []string{"item"}}, {Match: "/", Limits: []string{"all"}},
		},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/pay//..": true, "/pay/x//../..": true, "/pay/.//../": true, "/pay//%2e%2e": true, "/pay//.%2E/": true, "/pay%2f/..": true,
		"/pay//%252e%252e": true, `/pay/\..`: true, "/pay/%5c..": true, "/pay//x//../..": true, "/sale//..": true, "/shop//../item": true, "/x//../pay/../../pay//..": true,
		"//x/pay": true, "//x/shop/item": true,
		"//pay": false, "//shop/item": false, "/x//y": false, "//x": false, "//pay/x": false, "/shop//item": false, "/x//..": false, "/x//../y": false, "/pay/..": false,
	} {
		if m := e.Match(Request{Method: "GET", Path: path}); m.Ambiguous != want {
			t.Errorf("%s: ambiguous is %v, route %d", path, m.Ambiguous, m.Route)
		}
	}
}

// TestEvenPoliciesHaveNoAmbiguousPaths: if all routes protect alike, a path may be read in any way.
func TestEvenPoliciesHaveNoAmbiguousPaths(t *testing.T) {
	e, err := New(Policy{Routes: []Route{{Match: "/a"}, {Match: "/"}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m := e.Match(Request{Method: "GET", Path: "/a%2fb;c%5cd%20/e%2541/../a"}); m.Ambiguous {
		t.Error("refused")
	}
}

// TestReadings: each way to read a path, and that differences finds it.
func TestReadings(t *testing.T) {
	for _, c := range []struct {
		way        reading
		path, want string
	}{
		{0, "/a/../b%2fc", "/b/c"},
		{keepsSlashes, "/a%2fb/../c", "/c"},
		{keepsSlashes, "/a%2fb", "/a%2fb"},
		{keepsDots, "/a/../b", "/a/../b"},
		{keepsDots, "/a/%2e%2e/b", "/a/../b"},
		{keepsDots | keepsSlashes, "/a/..%2fb", "/a/..%2fb"},
		{keepsEscapes, "/%61%2d", "/%61-"},
		{dropsParams, "/a;b/c;d=e", "/a/c"},
		{dropsParams, "/a/..;x/c", "/c"},
		{takesBackslash, `/a%5C..\b`, "/b"},
		{dropsTails, "/a./b%20/c%00d", "/a/b/c"},
		{dropsTails, "/x/..%20/b/%20/...", "/b/"},
		{decodesTwice, "/%2561", "/a"},
		{keepsDoubles, "//a//b//", "//a//b//"},
		{keepsDoubles, "/a//..", "/a/"},
		{keepsDoubles, "/a//%2e%2e/b", "/a/b"},
		{keepsDoubles | takesBackslash, `/a/\..`, "/a/"},
		{takesHost, "//h/a/b", "/a/b"},
		{takesHost, `/\h\a`, `/\a`},
		{takesHost, "//h", "/"},
		{decodesTwice | takesBackslash, "/a%255c..%255cb", "/b"},
		{decodesTwice | dropsParams, "/a%3bb", "/a"},
	} {
		if got := c.way.path(c.path); got != c.want {
			t.Errorf("%08b of %s: %s, want %s", c.way, c.path, got, c.want)
		}
		if got := differences(c.path); got&c.way != c.way {
			t.Errorf("%08b of %s: only %08b is found", c.way, c.path, got)
		}
	}
}

// TestRouteWarnings: Check warns of requests that pass a route by a slash or other letters, and is
// silent where none do.
func TestRouteWarnings(t *testing.T) {
	limit := []Limit{{Name: "pay", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}}, {Name: "all", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}}}
	pay, both := []string{"pay"}, []string{"pay", "all"}
	for name, c := range map[string]struct {
		paths  Paths
		routes []Route
		want   string // the fix; empty for no warning
	}{
		"the rest is not limited": {Paths{}, []Route{{Match: "POST /pay", Limits: pay}, {Match: "/"}}, "{ ignore_case: true, ignore_trailing_slash: true }"},
		"a folder":                {Paths{}, []Route{{Match: "/pay/", Limits: pay}, {Match: "/"}}, "{ ignore_case: true, ignore_trailing_slash: true }"},
		"a variable":              {Paths{}, []Route{{Match: "/{x}", Limits: pay}, {Match: "/"}}, "{ ignore_trailing_slash: true }"},
		"a beginning":             {Paths{}, []Route{{Match: "/pay*", Limits: pay}, {Match: "/"}}, "{ ignore_case: true }"},
		"no letters":              {Paths{}, []Route{{Match: "/1/", Limits: pay}, {Match: "/"}}, "{ ignore_trailing_slash: true }"},
		"the other has another":   {Paths{}, []Route{{Match: "/pay", Limits: both}, {Match: "/", Limits: pay}}, "{ ignore_case: true, ignore_trailing_slash: true }"},
		"the other has more":      {Paths{}, []Route{{Match: "/pay", Limits: pay}, {Match: "/", Limits: both}}, ""},
		"nothing else":            {Paths{}, []Route{{Match: "/pay", Limits: pay}}, ""},
		"nothing else there":      {Paths{}, []Route{{Match: "a.test/pay", Limits: pay}, {Match: "b.test/"}}, ""},
		"all hosts":               {Paths{}, []Route{{Match: "*.a.test/pay", Limits: pay}, {Match: "/"}}, "{ ignore_case: true, ignore_trailing_slash: true }"},
		"other methods":           {Paths{}, []Route{{Match: "POST /pay", Limits: pay}, {Match: "GET /"}}, ""},
		"other addresses":         {Paths{}, []Route{{Match: "/pay", Address: []string{":1"}, Limits: pay}, {Match: "/", Address: []string{":2"}}}, ""},
		"respond":                 {Paths{}, []Route{{Match: "/pay", Limits: pay}, {Match: "/", Respond: Response{Status: 404}}}, ""},
		"a redirect of the slash": {Paths{IgnoreCase: No}, []Route{{Match: "/pay/", Limits: pay}, {Match: "/pay", Respond: Response{Redirect: "/pay/"}}, {Match: "/"}}, ""},
		"a refusal":               {Paths{}, []Route{{Match: "/pay/", Respond: Response{Status: 403}}, {Match: "/"}}, "{ ignore_case: true, ignore_trailing_slash: true }"},
		"said by the policy":      {Paths{IgnoreCase: Yes, IgnoreTrailingSlash: No}, []Route{{Match: "/pay", Limits: pay}, {Match: "/"}}, ""},
		"said in part":            {Paths{IgnoreCase: Yes}, []Route{{Match: "/pay", Limits: pay}, {Match: "/"}}, "{ ignore_case: true, ignore_trailing_slash: true }"},
		"said by the route":       {Paths{}, []Route{{Match: "/pay", Limits: pay, Paths: Paths{IgnoreCase: No, IgnoreExtension: Yes}}, {Match: "/"}}, "{ ignore_case: false, ignore_trailing_slash: true, ignore_extension: true }"},
		"never reached":           {Paths{}, []Route{{Match: "/"}, {Match: "/pay", Limits: pay}}, ""},
		"two routes":              {Paths{IgnoreCase: No}, []Route{{Match: "/pay", Limits: pay}, {Match: "/pay/", Limits: pay}, {Match: "/"}}, ""},
	} {
		p := Policy{Limits: limit, Paths: c.paths, Routes: c.routes, Listen: Listen{Gateway: []Listener{{Address: ":1"}, {Address: ":2"}}}}
		got := ""
		for _, problem := range p.Check() {
			if strings.HasPrefix(problem.Message, "requests for ") {
				got += strings.TrimPrefix(problem.Fix, "paths: ")
				if !problem.Warning {
					t.Errorf("%s: an error", name)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestVariantsAreCounted: no variant passes a route in silence with all settings, whatever its path is: it is
// matched, refused as ambiguous, or one that needs a route of its own.
func TestVariantsAreCounted(t *testing.T) {
	for _, match := range []string{"/pay", "/pay/", "/a/pay", "/a/pay/", "/a/{x}", "/item.v2/x"} {
		e, err := New(Policy{Paths: loose, Limits: []Limit{{Name: "pay", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}}}, Routes: []Route{{Match: match, Limits: []string{"pay"}}, {Match: "/"}}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := parsePattern(match)
		for _, v := range Variants(p.sample()) {
			m := e.Match(Request{Method: "GET", Path: v.Path})
			if m.Route != 0 && !m.Ambiguous && v.Match == "" {
				t.Errorf("%s: %s (%s): route %d, ambiguous %v", match, v.Path, v.What, m.Route, m.Ambiguous)
			}
		}
	}
}

func FuzzPaths(f *testing.F) {
	for _, path := range []string{"/PAY/", "/pay;x/..;/%2e%2e%2f", "/x%5c..%5cpay. ", "/%2570ay%00", "", "*", "/%"} {
		f.Add(path)
	}
	e, err := New(shopPolicy(loose), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		m := e.Match(Request{Method: "GET", Path: path})
		if again := e.Match(Request{Method: "GET", Path: path}); again.Route != m.Route || again.Ambiguous != m.Ambiguous {
			t.Errorf("%q: %d %v, then %d %v", path, m.Route, m.Ambiguous, again.Route, again.Ambiguous)
		}
		if m.Route >= 0 {
			m.request.onePath()
			e.UpstreamTarget(m.Route, path)
		}
		if reading(0).path(path) != normalPath(path) && !isNormal(path) {
			t.Errorf("%q is normalised in two ways", path)
		}
	})
}
