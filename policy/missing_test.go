package policy_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestKeysThatMayBeMissing: there is a warning for a key whose parts may all be missing, because
// all clients that send none of them share one state, unless on_missing is set.
func TestKeysThatMayBeMissing(t *testing.T) {
	for text, want := range map[string]string{
		"header.user-id":           "all requests without header.user-id share one key",
		"query.sku,cookie.session": "all requests without query.sku and cookie.session share one key",
		"header.user-id,const.api": "all requests without header.user-id share one key",
		"client.ip,header.user-id": "",
		"header.user-id,path":      "",
		"client.ip":                "",
		"const.api":                "",
		"":                         "",
	} {
		for _, onMissing := range []string{"", "key", "skip", "skip_empty", "deny"} {
			p := good()
			p.Limits[0].Key, p.Limits[0].OnMissing = nil, onMissing
			if text != "" {
				p.Limits[0].Key = strings.Split(text, ",")
			}
			problems := p.Check()
			if want == "" || onMissing != "" {
				if len(problems) > 0 {
					t.Errorf("%s, %s: %v", text, onMissing, problems)
				}
				continue
			}
			if len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Message, want) || !strings.Contains(problems[0].Fix, "on_missing: skip") {
				t.Errorf("%s: %v, want %q", text, problems, want)
			}
		}
	}
}

// TestPartsOfOtherProducts: the error for a key part in the words of nginx or another product names
// the part in Weir's.
func TestPartsOfOtherProducts(t *testing.T) {
	for text, want := range map[string]string{
		"ip": "client.ip", "remote_addr": "client.ip", "$binary_remote_addr": "client.ip", "client_ip": "client.ip", "header.x-forwarded-for": "",
		"$http_x_api_key": "header.x-api-key", "$cookie_session": "cookie.session", "$arg_sku": "query.sku", "headers.user-id": "header.user-id",
		"$host": "host", "$request_uri": "uri", "request_method": "method", "url": "uri", "heder.x": "header.x", "pth": "path", "zzz": "",
	} {
		p := good()
		p.Limits[0].Key = []string{"client.ip", text}
		fix := ""
		for _, problem := range p.Check() {
			fix += problem.Fix
		}
		if (want == "") != (fix == "") || !strings.Contains(fix, want) {
			t.Errorf("%s: %q, want %q", text, fix, want)
		}
	}
}

// TestPartsThatNobodySends: the key parts that no request had are found, for limits that were
// evaluated.
func TestPartsThatNobodySends(t *testing.T) {
	p := good()
	p.Limits = append(p.Limits, policy.Limit{Name: "unasked", Key: []string{"header.never"}, Limit: bucket("1/s", 1)})
	p.Routes = append(p.Routes, policy.Route{Match: "/elsewhere", Limits: []string{"unasked"}})
	e, err := policy.New(p, policy.Options{Parts: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.Decide(policy.Request{Method: "GET", Path: "/nowhere"})
	if got := e.Missing(); got != nil {
		t.Errorf("%v", got)
	}
	r := policy.Request{Method: "GET", Path: "/ratelimit/sku", Client: "10.0.0.1", Query: "sku_id=7", Header: http.Header{"X-Cost": {"1"}}}
	e.Decide(r)
	if got, want := e.Missing(), []policy.MissingPart{{Limit: "per-user", Part: "header.user-id"}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r.Header.Set("User-Id", "7")
	e.Decide(r)
	if got := e.Missing(); got != nil {
		t.Errorf("%v", got)
	}
}

// TestRepeatedParts: a key part that is sent twice, or also under an alias, never exempts a
// request, whatever on_missing and exempt say. Such requests share one key.
func TestRepeatedParts(t *testing.T) {
	for part, sent := range map[string][]func(*policy.Request){
		"header.x-key": {
			func(r *policy.Request) { r.Header["X-Key"] = []string{"a", "a"} },
			func(r *policy.Request) { r.Header["X-Key"] = []string{"", ""} },
		},
		"query.u": {
			func(r *policy.Request) { r.Query = "u=a&u=a" },
			func(r *policy.Request) { r.Query = "u=a&U=b" },
			func(r *policy.Request) { r.Query = "u[]=a" },
			func(r *policy.Request) { r.Query = "x=1;u=a" },
		},
		"cookie.c": {
			func(r *policy.Request) { r.Header["Cookie"] = []string{"c=1; c=2"} },
			func(r *policy.Request) { r.Header["Cookie"] = []string{"c=1", "c=1"} },
			func(r *policy.Request) { r.Header["Cookie"] = []string{"c=1, c=2"} },
			func(r *policy.Request) { r.Header["Cookie"] = []string{"C=1"} },
		},
	} {
		for _, onMissing := range []string{"", "key", "skip", "skip_empty", "deny"} {
			for name, l := range map[string]policy.Limit{
				"alone":           {Key: []string{part}},
				"with another":    {Key: []string{part, "header.other"}},
				"an empty exempt": {Key: []string{part, "const.x"}, Exempt: []string{"key.,x"}},
			} {
				l.Name, l.OnMissing, l.Limit = "l", onMissing, bucket("1/h", 1)
				e, _ := engine(t, policy.Policy{Limits: []policy.Limit{l}, Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}}})
				allowed := 0
				for i := range 10 {
					r := get("/", "10.0.0.1")
					sent[i%len(sent)](&r)
					if e.Decide(r).Outcome == policy.Allow {
						allowed++
					}
				}
				want := 1
				if onMissing == "deny" && name == "with another" { // it counts as missing
					want = 0
				}
				if allowed != want {
					t.Errorf("%s, %s, on_missing %q: %d requests are allowed, want %d", part, name, onMissing, allowed, want)
				}
				if e.Decide(get("/", "10.0.0.1")).Outcome != policy.Allow && onMissing == "skip_empty" && name == "alone" {
					t.Errorf("%s, %s: a request without the part is limited", part, name)
				}
			}
		}
	}
}

// TestLimitsOfServices: a limit that only clients of a service such as listen.http name has no warning
// that no route uses it, or that a request may lack a part of its key.
func TestLimitsOfServices(t *testing.T) {
	limits := []policy.Limit{{Name: "per-user", Key: []string{"header.user"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}}}
	for _, c := range []struct {
		others []policy.Endpoint
		routes []policy.Route
		want   int
	}{
		{nil, nil, 2},
		{[]policy.Endpoint{{Face: "http", Address: "127.0.0.1:1"}}, nil, 0},
		// and that no proxy is trusted
		{[]policy.Endpoint{{Face: "http", Address: "127.0.0.1:1"}}, []policy.Route{{Match: "/", Limits: []string{"per-user"}}}, 2},
	} {
		p := policy.Policy{Limits: limits, Routes: c.routes}
		p.Listen.Others = c.others
		if got := p.Check(); len(got) != c.want {
			t.Errorf("%d services, %d routes: %v", len(c.others), len(c.routes), got)
		}
		p.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		if got := p.Check(); len(got) != min(c.want, 2)-len(c.routes) {
			t.Errorf("%d services, %d routes, with a trusted proxy: %v", len(c.others), len(c.routes), got)
		}
	}
}
