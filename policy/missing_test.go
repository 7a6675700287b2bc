package policy_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
)

// TestKeysThatMayBeMissing: a key by which all clients that send none of its parts share one state is warned of, unless somebody has said what
// becomes of them.
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

// TestPartsOfOtherProducts: who writes a part of a key as nginx or another product does is told what it is called here.
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

// TestPartsThatNobodySends: the parts that no request had are found, of limits that were asked.
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
