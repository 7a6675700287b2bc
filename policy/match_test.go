package policy

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		match, method, host, path string
		want                      bool
	}{
		{"/", "GET", "a", "/", true},
		{"/", "POST", "a", "/x/y", true},
		{"/", "GET", "a", "//", true},
		{"/", "OPTIONS", "a", "*", false},
		{"GET /", "POST", "a", "/", false},
		{"GET /", "HEAD", "a", "/", true},
		{"HEAD /", "GET", "a", "/", false},
		{"/a", "GET", "a", "/a", true},
		{"/a", "GET", "a", "/a/", false},
		{"/a", "GET", "a", "/ab", false},
		{"/a", "GET", "a", "/A", false},
		{"/a", "GET", "a", "/%61", true},
		{"/%61", "GET", "a", "/a", true},
		{"/a", "GET", "a", "//a", true},
		{"/a", "GET", "a", "/x/../a", true},
		{"/a", "GET", "a", "/x/%2e%2e/a", true},
		{"/a", "GET", "a", "/./a", true},
		{"/a", "GET", "a", "/../../a", true},
		{"/a/b", "GET", "a", "/a%2Fb", true},
		{"/a/b", "GET", "a", "/a%2fb", true},
		{"/a/", "GET", "a", "/a", false},
		{"/a/", "GET", "a", "/a/", true},
		{"/a/", "GET", "a", "/a/b/c", true},
		{"/a/", "GET", "a", "/a/.", true},
		{"/a/{x}", "GET", "a", "/a/b", true},
		{"/a/{x}", "GET", "a", "/a/", false},
		{"/a/{x}", "GET", "a", "/a/b/c", false},
		{"/a/{x}/c", "GET", "a", "/a/b/c", true},
		{"/a/{x}/", "GET", "a", "/a/b/c", true},
		{"/a/{x...}", "GET", "a", "/a/", true},
		{"/a/{x...}", "GET", "a", "/a/b/c", true},
		{"/a/{x...}", "GET", "a", "/a", false},
		{"shop.example/", "GET", "shop.example", "/", true},
		{"shop.example/", "GET", "SHOP.example.:8080", "/", true},
		{"shop.example/", "GET", "other", "/", false},
		{"GET [::1]/a", "GET", "[::1]:80", "/a", true},
		{"[::1]/a", "GET", "[::1]", "/a", true},
		{"/", "GET", "", "", true},
		{"/status*", "GET", "a", "/status", true},
		{"/status*", "GET", "a", "/status.html", true},
		{"/status*", "GET", "a", "/statusx/y", true},
		{"/status*", "GET", "a", "/stat", false},
		{"/status*", "GET", "a", "/x/status", false},
		{"/status*", "GET", "a", "/%73tatus.html", true},
		{"/a/b*", "GET", "a", "/a/bc/d", true},
		{"/a/b*", "GET", "a", "/a", false},
		{"/a/*", "GET", "a", "/a/", true},
		{"/*", "GET", "a", "/x/y", true},
		{"/{$}", "GET", "a", "/", true},
		{"/{$}", "GET", "a", "/x", false},
		{"/a/{$}", "GET", "a", "/a/", true},
		{"/a/{$}", "GET", "a", "/a", false},
		{"/a/{$}", "GET", "a", "/a/b", false},
		{"*.shop.example/", "GET", "www.shop.example:81", "/", true},
		{"*.shop.example/", "GET", "a.b.shop.example", "/", true},
		{"*.shop.example/", "GET", "shop.example", "/", false},
		{"*.shop.example/", "GET", "myshop.example", "/", false},
	} {
		p, err := parsePattern(c.match)
		if err != nil {
			t.Errorf("%q: %v", c.match, err)
			continue
		}
		r := &request{Request: Request{Method: c.method, Host: c.host, Path: c.path}}
		if got := p.matches(r); got != c.want {
			t.Errorf("%q matches %s %s %s: %v", c.match, c.method, c.host, c.path, got)
		}
	}
}

func TestInvalidMatches(t *testing.T) {
	for match, want := range map[string]string{
		"":                 "[METHOD] [HOST]/PATH",
		"GET /a b":         "[METHOD] [HOST]/PATH",
		"get /":            "not a method",
		"~ ^/x":            "no regular expressions",
		"~* \\.php$":       "no regular expressions",
		"^~ /x":            "like a location of nginx",
		"^/x":              "no regular expressions",
		"GET,POST /":       "not a method",
		"GET":              "no path",
		"example.com":      "no path",
		"a.*.example.com/": "not a plain name",
		".example.com/":    "write *.example.com",
		"/a//b":            "no normalised path",
		"/a/../b":          "no normalised path",
		"/a/{}":            "not a variable",
		"/a/{x y}":         "not a method",
		"/a/{x...}/b":      "must be the last",
		"/a/{x}/{x}":       "twice",
		"/a/{x}b":          "whole segment",
		"/a/b*/c":          "whole segment",
		"/a/{$}/b":         "not a variable",
	} {
		if _, err := parsePattern(match); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want one with %q", match, err, want)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/", "/a", true}, {"/", "GET x.com/a/{b...}", true}, {"/a", "/", false}, {"/a", "/a", true}, {"/a/", "/a", false}, {"/a/", "/a/b", true},
		{"GET /", "/", false}, {"/", "GET /", true}, {"GET /", "HEAD /", true}, {"HEAD /", "GET /", false}, {"/{x}", "/a", true}, {"/a", "/{x}", false},
		{"/{x}", "/{y}", true}, {"/{x}/", "/a/b", true}, {"x.com/", "/", false}, {"/", "x.com/", true}, {"x.com/", "y.com/", false}, {"/a/{x...}", "/a/", true},
		{"/a/b", "/a/", false},
		{"/a*", "/a", true}, {"/a*", "/ab/c", true}, {"/a*", "/ab*", true}, {"/ab*", "/a*", false}, {"/a/*", "/a/", true}, {"/a/", "/a/*", true}, {"/a*", "/b", false},
		{"/a*", "/a/{x}", true}, {"/a*", "/{x}", false}, {"/", "/{$}", true}, {"/{$}", "/", false}, {"/a/", "/a/{$}", true}, {"/a/*", "/a/{$}", true}, {"/a*", "/", false},
		{"*.x.com/", "y.x.com/", true}, {"*.x.com/", "*.y.x.com/", true}, {"*.x.com/", "x.com/", false}, {"y.x.com/", "*.x.com/", false}, {"/a/", "/a*", false},
		{"/a/b*", "/a/b", true}, {"/a/b*", "/a/{x}", false}, {"/{x}/b*", "/a/b", true},
	} {
		a, err := parsePattern(c.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := parsePattern(c.b)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.covers(&b); got != c.want {
			t.Errorf("%q covers %q: %v", c.a, c.b, got)
		}
	}
}

func FuzzNormalPath(f *testing.F) {
	for _, p := range []string{"/", "/a/../b", "/%2e%2e/a", "//", "/a%", "/a/./", "", "*", "/a%2fb%2F..", "/.a/..b"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		n := normalPath(path)
		if n == "" || n[0] != '/' || strings.Contains(n, "//") || strings.Contains(n+"/", "/../") || strings.Contains(n+"/", "/./") {
			t.Errorf("%q is normalised to %q", path, n)
		}
	})
}

func FuzzPattern(f *testing.F) {
	f.Add("GET /a/{x}/b", "/a/1/b")
	f.Add("h/{x...}", "/")
	f.Fuzz(func(t *testing.T, match, path string) {
		p, err := parsePattern(match)
		if err != nil {
			return
		}
		p.matches(&request{Request: Request{Method: "GET", Path: path}})
		if !p.covers(&p) {
			t.Errorf("%q does not cover itself", match)
		}
	})
}
