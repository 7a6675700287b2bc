package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestExplainAdaptive: the state of an adaptive limit of a running server, which has no keys.
func TestExplainAdaptive(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": `
listen: { http: "127.0.0.1:0", admin: "127.0.0.1:0" }
routes:
  - { match: /export, adaptive: { knee: { initial: 2, max: 2 } } }
`})
	r := startWeir(t, "serve", dir+"/p.yaml")
	at := r.until(`"http":\["([^"]+)"`)
	admin := r.until(`"admin":\["([^"]+)"`)
	defer r.stop()
	for range 3 {
		response, err := http.Post("http://"+at+"/v1/enter", "application/json", strings.NewReader(`{"request": {"path": "/export"}}`))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	for args, want := range map[string]string{
		"adaptive:/export --admin " + admin:        `^2 of 2 in flight\nlimit +adaptive:/export\nqueued +0\nended +0 ok, 0 dropped\nrefused +1 \(full 1\)\n$`,
		"adaptive:/export --json --admin " + admin: `"in_flight":2.*"refused_for":{"full":1}`,
		"adaptive:/no --admin " + admin:            `there is no adaptive limit "adaptive:/no": known: adaptive:/export`,
		"adaptive:/export x --admin " + admin:      `leave KEY out`,
		"adaptive:/export --http " + at:            `add --admin`,
		"per-user --admin " + admin:                `KEY is missing`,
	} {
		_, out, errs := weir(t, "", append([]string{"explain"}, strings.Fields(args)...)...)
		if !regexp.MustCompile(want).MatchString(out + errs) {
			t.Errorf("explain %s:\n%s%s", args, out, errs)
		}
	}
}
