package nginx

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLocationForms: for each form of a location that becomes a route, nginx and the gateway take the
// same requests for it.
func TestLocationForms(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(up.Close)
	forms := []string{
		"/shop", "/shop/", "= /shop", "= /shop/", "^~ /shop", "^~ /shop/", "= /",
		"~ ^/shop", "~ ^/shop$", "~ ^/shop/", "~* ^/shop", "~* ^/shop$", "~ ^/shop/?$", "~* ^/shop/?$", "~ ^/shop(/|$)", "~ ^/shop(?:/|$)", "~* ^/shop(/|$)",
		`~ ^/shop\.html$`, "~ ^/a-b/c_d", "~ ^/",
	}
	paths := []string{
		"/", "/shop", "/shop/", "/SHOP", "/Shop/", "/shop/a", "/SHOP/a", "/shop/a/", "/shops", "/SHOPS/x", "/shop.html", "/shopxhtml", "/shop.html/", "/x/shop", "//shop", "/shop//",
		"/%73hop", "/shop/?a=b", "/shop?a=b", "/a-b/c_d", "/a-b/c_de/f", "/a-b", "/x",
	}
	var conf strings.Builder
	for i, form := range forms {
		fmt.Fprintf(&conf, "server { listen {{.Addr}}; server_name f%d.test; location %s { proxy_set_header Host $host; proxy_pass http://%s; } ", i, form, up.Listener.Addr())
		if form != "~ ^/" {
			conf.WriteString("location / { return 204; } ")
		}
		conf.WriteString("}\n")
	}
	p := startFor(t, conf.String(), false, nil)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	for i, form := range forms {
		taken := 0
		for _, path := range paths {
			var got [2]string
			for side, at := range []string{p.nginx.Addr, p.weir.Gateway} {
				r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+at+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = fmt.Sprintf("f%d.test", i)
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				_, location, _ := strings.Cut(resp.Header.Get("Location"), ".test") // nginx adds the scheme and the host
				if location == "" {
					location = resp.Header.Get("Location")
				}
				got[side] = fmt.Sprintf("%d %s", resp.StatusCode, location[strings.Index(location+"/", "/"):])
				if side == 0 && resp.StatusCode == http.StatusOK {
					taken++
				}
			}
			if got[0] != got[1] {
				t.Errorf("location %s: %s: nginx %s, weir %s", form, path, got[0], got[1])
			}
		}
		if taken == 0 {
			t.Errorf("location %s takes none of the requests", form)
		}
	}
}
