package refusal

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
)

// TestOf: the response is the first that a policy names of a redirect, a file and a body.
func TestOf(t *testing.T) {
	files := map[string][]byte{"busy.html": []byte("busy")}
	for name, c := range map[string]struct {
		of                      policy.Refused
		status                  int
		contentType, body, away string
	}{
		"nothing":                           {policy.Refused{}, 429, "text/plain; charset=utf-8", "Too Many Requests\n", ""},
		"a status":                          {policy.Refused{Status: 503}, 503, "text/plain; charset=utf-8", "Service Unavailable\n", ""},
		"a body":                            {policy.Refused{Body: `{"a": 1}`}, 429, "application/json", `{"a": 1}`, ""},
		"a body with a type":                {policy.Refused{Body: "a", Type: "text/x"}, 429, "text/x", "a", ""},
		"a file":                            {policy.Refused{Status: 403, File: "busy.html"}, 403, "text/html; charset=utf-8", "busy", ""},
		"a file with a type":                {policy.Refused{File: "busy.html", Type: "text/x"}, 429, "text/x", "busy", ""},
		"a file for a caller without files": {policy.Refused{File: "other.html"}, 429, "text/plain; charset=utf-8", "Too Many Requests\n", ""},
		"a redirect":                        {policy.Refused{Redirect: "/wait"}, 302, "", "", "/wait"},
	} {
		w, r := httptest.NewRecorder(), Of(c.of, []string{"known"}, files)
		r.Write(w, httptest.NewRequest("GET", "/", nil), "known")
		if w.Code != c.status || w.Header().Get("Content-Type") != c.contentType || w.Body.String() != c.body || w.Header().Get("Location") != c.away {
			t.Errorf("%s: %d %v %q", name, w.Code, w.Header(), w.Body)
		}
	}
}

// TestWrite: clients get problem+json only if they accept it, and with the limit that refused.
func TestWrite(t *testing.T) {
	limited, busy := Default(429, "known"), Default(503)
	page, away := Body(503, "", []byte("<p>busy</p>")), Redirect(302, "/wait")
	for _, c := range []struct {
		r                          Response
		method, accept, limit      string
		status                     int
		contentType, body, located string
	}{
		{limited, "GET", "", "known", 429, "text/plain; charset=utf-8", "Too Many Requests\n", ""},
		{limited, "GET", "text/html, */*", "known", 429, "text/plain; charset=utf-8", "Too Many Requests\n", ""},
		{limited, "GET", "text/html, application/json", "known", 429, "application/problem+json", `"violated-policies":["known"]`, ""},
		{limited, "GET", "application/problem+json;q=0", "known", 429, "text/plain; charset=utf-8", "", ""},
		{limited, "GET", "application/problem+json", `un"known`, 429, "application/problem+json", `#quota-exceeded","title":"Too Many Requests","status":429,"violated-policies":["un\"known"]`, ""},
		{limited, "GET", "application/json", "", 429, "text/plain; charset=utf-8", "", ""},
		{limited, "HEAD", "application/json", "known", 429, "application/problem+json", "", ""},
		{busy, "GET", "application/json", "a", 503, "application/problem+json", "#temporary-reduced-capacity", ""},
		{page, "GET", "application/json", "a", 503, "text/html; charset=utf-8", "<p>busy</p>", ""},
		{away, "GET", "application/json", "a", 302, "", "", "/wait"},
	} {
		rec, r := httptest.NewRecorder(), httptest.NewRequest(c.method, "/", nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		c.r.Write(rec, r, c.limit)
		h, body := rec.Header(), rec.Body.String()
		if rec.Code != c.status || h.Get("Content-Type") != c.contentType || !strings.Contains(body, c.body) || h.Get("Location") != c.located || c.method == http.MethodHead && body != "" {
			t.Errorf("%s %q: %d %v %q", c.method, c.accept, rec.Code, h, body)
		}
	}
}

// TestUnidentified: a 401 names Bearer where a client can send credentials in it, as text and as problem.
func TestUnidentified(t *testing.T) {
	for _, bearer := range []bool{true, false} {
		for _, accept := range []string{"text/plain", "application/problem+json"} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Accept", accept)
			u := Unidentified(bearer)
			u.WriteUnidentified(w, r)
			if named := w.Header().Get("Www-Authenticate") == "Bearer"; w.Code != 401 || named != bearer || !strings.HasPrefix(w.Header().Get("Content-Type"), accept) {
				t.Errorf("bearer %v, %s: %d %v", bearer, accept, w.Code, w.Header())
			}
		}
	}
}
