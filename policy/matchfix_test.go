package policy

import "testing"

// TestMatchFixes: what to write instead of a match that is wrong, or that is probably not meant.
func TestMatchFixes(t *testing.T) {
	for match, want := range map[string]string{
		"https://shop.example/":      "match: shop.example/",
		"GET http://shop.example/x":  "match: GET shop.example/x",
		"https://shop.example":       "match: shop.example/",
		"http://shop.example:8080/x": "match: shop.example:8080/x",
		"shop.example":               "match: shop.example/",
		"*.shop.example":             `match: "*.shop.example/"`,
		"localhost":                  "match: localhost/",
		"checkout":                   "match: /checkout",
		"checkout.php":               "match: /checkout.php",
		"POST checkout":              "match: POST /checkout",
		"get /checkout":              "match: GET /checkout",
		"/a//b":                      "match: /a/b",
		"//a":                        "match: /a",
		"~ ^/x":                      "write it like GET /shop/{item}, or / for everything",
		"":                           "write it like GET /shop/{item}, or / for everything",
		"/a/{x}b":                    "write it like GET /shop/{item}, or / for everything",
	} {
		if _, err := parsePattern(match); err == nil {
			t.Errorf("%q is no mistake", match)
		}
		if got := matchFix(match); got != want {
			t.Errorf("%q: %s, want %s", match, got, want)
		}
	}
	for match, want := range map[string]string{
		"api/x": "match: /api/x", "GET api/x": "match: GET /api/x", "api.v2/x": "match: /api.v2/x", "index.php/x": "match: /index.php/x", "POST pay.json/": "",
		"shop.example/x": "", "shop.example/": "", "192.0.2.7/x": "", "localhost/x": "", "[::1]/x": "", "*.example.com/x": "", "shop.xn--p1ai/x": "", "host:80/x": "", "/x": "",
	} {
		if got := withSlash(match); got != want {
			t.Errorf("%q: %s, want %s", match, got, want)
		}
	}
}
