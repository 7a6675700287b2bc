package nginx

import (
	"testing"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// TestRegularExpressionsOfPaths: locations that ignore case or the final slash become routes that do.
func TestRegularExpressionsOfPaths(t *testing.T) {
	for location, c := range map[string]struct{ limited, others []string }{
		"~ ^/pay":             {[]string{"/pay", "/payment", "/pay/x"}, []string{"/PAY", "/x"}},
		"~* ^/pay":            {[]string{"/pay", "/PAYment", "/Pay/x"}, []string{"/x"}},
		"~ ^/pay$":            {[]string{"/pay"}, []string{"/pay/", "/PAY"}},
		"~* ^/pay$":           {[]string{"/pay", "/PAY"}, []string{"/pay/", "/pay/x"}},
		"~ ^/pay/?$":          {[]string{"/pay", "/pay/"}, []string{"/PAY", "/pay/x"}},
		"~* ^/pay/?$":         {[]string{"/pay", "/PAY/"}, []string{"/pay/x"}},
		"~ ^/pay(/|$)":        {[]string{"/pay", "/pay/", "/pay/x"}, []string{"/payment", "/PAY"}},
		"~* \"^/pay(?:/|$)\"": {[]string{"/Pay", "/pay/", "/PAY/x"}, []string{"/payment"}},
		"~ ^/pay/":            {[]string{"/pay/", "/pay/x"}, []string{"/pay", "/PAY/"}},
	} {
		conf := memory{"f": "http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; server { listen 127.0.0.1:80; proxy_set_header Host $host;" +
			" location / { proxy_pass http://127.0.0.1:9; } location " + location + " { limit_req zone=one; proxy_pass http://127.0.0.1:9; } } }"}
		result, notes := notesOf(t, conf, Options{})
		if result.Critical() {
			t.Errorf("%s: %q", location, notes)
			continue
		}
		f, err := policyfile.Parse("f.yaml", result.Policy)
		if err != nil {
			t.Fatal(err)
		}
		e, err := policy.New(f.Policy, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for want, paths := range map[bool][]string{true: c.limited, false: c.others} {
			for _, path := range paths {
				m := e.Match(policy.Request{Method: "GET", Path: path})
				if limited := m.Route >= 0 && len(f.Policy.Routes[m.Route].Limits) > 0; limited != want {
					t.Errorf("%s: %s is limited: %v\n%s", location, path, limited, result.Policy)
				}
			}
		}
	}
}
