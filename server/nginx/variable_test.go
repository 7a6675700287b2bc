package nginx

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

// TestAllowLists: the meaning of a map or geo in a key: exemptions, limited methods, or the reason
// why a policy cannot express it.
func TestAllowLists(t *testing.T) {
	for _, c := range []struct {
		name, variables string
		exempt          string
		methods         string
		why             string
	}{
		{"geo behind a map", `geo $g { default 1; 10.0.0.0/8 0; 192.0.2.7 0; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "10.0.0.0/8 192.0.2.7", "", ""},
		{"three behind one another", `geo $g { default no; 10.0.0.0/8 yes; } map $g $h { yes 1; default 0; } map $h $k { ~^1 ""; default $binary_remote_addr; }`, "10.0.0.0/8", "", ""},
		{"a hole", `geo $g { default 1; 10.0.0.0/30 0; 10.0.0.2 1; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "10.0.0.0/31 10.0.0.3", "", ""},
		{"only some are limited", `geo $g { default 0; 128.0.0.0/1 1; ::/1 1; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "0.0.0.0/1 8000::/1", "", ""},
		{"a map by address", `map $remote_addr $k { default $binary_remote_addr; 127.0.0.1 ""; }`, "127.0.0.1", "", ""},
		{"a map by header", `map $http_x_api_key $k { default $binary_remote_addr; "s3cret" ""; other $binary_remote_addr; }`, "header.x-api-key=s3cret", "", ""},
		{"methods that are exempt", `map $request_method $k { default $binary_remote_addr; OPTIONS ""; }`, "method.OPTIONS", "", ""},
		{"methods that are limited", `map $request_method $k { default ""; POST $binary_remote_addr; PUT $binary_remote_addr; }`, "", "POST PUT", ""},
		{"nobody is limited", `map $request_method $k { default ""; }`, "", "", "empty"},
		{"two keys", `map $http_authorization $k { "" $binary_remote_addr; default $http_authorization; }`, "", "", `it is "$http_authorization" for some requests`},
		{"bots", `map $http_user_agent $k { default ""; ~*bot $binary_remote_addr; }`, "", "", "it limits only requests with some values of $http_user_agent"},
		{"ranges", `geo $g { ranges; 10.0.0.0-10.0.0.9 0; default 1; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "", "", "its geo has ranges"},
		{"a geo by a header", `geo $http_x_forwarded_for $g { default 1; } map $g $k { 1 $binary_remote_addr; }`, "", "", "its geo depends on $http_x_forwarded_for"},
		{"by another variable", `map $uri $k { default $binary_remote_addr; /x ""; }`, "", "", "it depends on $uri"},
		{"in a circle", `map $k $j { default 1; } map $j $k { default 1; }`, "", "", "too many maps"},
	} {
		text := "http { " + c.variables + ` limit_req_zone $k zone=one:1m rate=1r/s; server { listen 127.0.0.1:80; location / { limit_req zone=one; proxy_pass http://127.0.0.1:9000; } } }`
		result, err := Import(memory{"f": text}, "f", Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		file, err := policyfile.Parse("p", result.Policy)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, result.Policy)
		}
		var notes []string
		for _, n := range result.Notes {
			notes = append(notes, n.String())
		}
		all := strings.Join(notes, "\n")
		limits := file.Policy.Limits
		switch {
		case c.why == "empty":
			if len(limits) != 0 || result.Critical() || !strings.Contains(all, "its key is empty here") {
				t.Errorf("%s: %s\n%s", c.name, result.Policy, all)
			}
			continue
		case c.why != "":
			if len(limits) != 0 || !result.Critical() || !strings.Contains(all, c.why) || !strings.Contains(all, "it limits no request") {
				t.Errorf("%s: %s\n%s, want %q", c.name, result.Policy, all, c.why)
			}
			continue
		}
		if len(limits) != 1 || strings.Join(limits[0].Exempt, " ") != c.exempt || !slices.Equal(limits[0].Key, []string{"client.ip"}) {
			t.Errorf("%s: %+v, want %s", c.name, limits, c.exempt)
		}
		if byHeader := strings.Contains(c.exempt, "header."); byHeader != result.Critical() || strings.Contains(all, "s3cret") {
			t.Errorf("%s: %s", c.name, all)
		}
		var limited []string
		for _, r := range file.Policy.Routes {
			if method, _, ok := strings.Cut(r.Match, " "); ok && len(r.Limits) == 1 {
				limited = append(limited, method)
			} else if !ok && (len(r.Limits) == 0) != (c.methods != "") {
				t.Errorf("%s: %s has %v", c.name, r.Match, r.Limits)
			}
		}
		if strings.Join(limited, " ") != c.methods {
			t.Errorf("%s: limited are %v, want %s", c.name, limited, c.methods)
		}
	}
}

// TestPrefixWithoutHoles: a prefix without some holes is exactly the list of the remaining addresses.
func TestPrefixWithoutHoles(t *testing.T) {
	p := netip.MustParsePrefix("192.0.2.0/26")
	holes := []netip.Prefix{netip.MustParsePrefix("192.0.2.5/32"), netip.MustParsePrefix("192.0.2.16/30"), netip.MustParsePrefix("192.0.2.18/32"), netip.MustParsePrefix("192.0.2.62/31")}
	pieces := without(p, holes)
	contains := func(all []netip.Prefix, a netip.Addr) (n int) {
		for _, p := range all {
			if p.Contains(a) {
				n++
			}
		}
		return n
	}
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		want := 1
		if contains(holes, a) > 0 {
			want = 0
		}
		if got := contains(pieces, a); got != want {
			t.Errorf("%v is in %d pieces, want %d", a, got, want)
		}
	}
	if got := without(p, []netip.Prefix{p}); got != nil {
		t.Errorf("%v", got)
	}
}
