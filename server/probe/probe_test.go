package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// upstream is a server that notes what it was asked.
type upstream struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func serve(t *testing.T, h http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.asked = append(u.asked, r.Method+" "+r.RequestURI)
		u.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) options(t *testing.T) Options {
	t.Helper()
	at, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Options{URL: at}
}

func shop(routes ...policy.Route) *policy.Policy {
	p := &policy.Policy{Limits: []policy.Limit{{Name: "l", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}}}}
	for _, r := range routes {
		r.Limits = []string{"l"}
		p.Routes = append(p.Routes, r)
	}
	p.Routes = append(p.Routes, policy.Route{Match: "/"})
	return p
}

// passing are the variants that pass a limit.
func passing(r Result) (all []string) {
	for _, a := range r.Alike {
		if a.Fate == policy.FatePasses {
			all = append(all, a.Path)
		}
	}
	return all
}

func probe(t *testing.T, p *policy.Policy, o Options) Result {
	t.Helper()
	all, _, err := Run(context.Background(), p, o)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// TestUpstreams: what passes a limit on /pay, by what the upstream does with paths and methods.
func TestUpstreams(t *testing.T) {
	loose := func(path string) bool { return strings.EqualFold(strings.TrimSuffix(path, "/"), "/pay") }
	for name, c := range map[string]struct {
		serve   func(w http.ResponseWriter, r *http.Request)
		want    []string
		methods []string
		unclear bool
	}{
		"a strict one": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/pay" {
				w.WriteHeader(404)
			}
		}, nil, []string{"OPTIONS", "HEAD"}, false},
		"a loose one": {func(w http.ResponseWriter, r *http.Request) {
			if !loose(r.URL.Path) {
				w.WriteHeader(404)
			}
		}, []string{"/pay/", "/PAY", "/pay%2f"}, []string{"OPTIONS", "HEAD"}, false},
		"one that knows POST alone": {func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !loose(r.URL.Path):
				w.WriteHeader(404)
			case r.Method != "POST":
				w.Header().Set("Allow", "POST")
				w.WriteHeader(405)
			}
		}, []string{"/pay/", "/PAY", "/pay%2f"}, []string{"OPTIONS", "HEAD"}, false},
		"one that answers OPTIONS to all": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "OPTIONS" && !loose(r.URL.Path) {
				w.WriteHeader(404)
			}
		}, []string{"/pay/", "/PAY", "/pay%2f"}, []string{"HEAD"}, false},
		"one that answers 200 to all": {func(w http.ResponseWriter, r *http.Request) {
			if loose(r.URL.Path) {
				fmt.Fprint(w, "pay here")
			} else {
				fmt.Fprint(w, "the start")
			}
		}, []string{"/pay/", "/PAY", "/pay%2f"}, []string{"OPTIONS", "GET"}, false},
		"one that names the canonical path": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "OPTIONS" {
				return
			}
			w.(http.Flusher).Flush() // so that no length tells them apart
			title := "Nothing here"
			if loose(r.URL.Path) {
				title = "Pay"
			}
			fmt.Fprintf(w, "<h1>%s</h1><link rel=canonical href=%q>", title, strings.TrimSuffix(strings.ToLower(r.RequestURI), "/"))
		}, []string{"/pay/", "/PAY", "/pay%2f"}, []string{"GET"}, false},
		"one that sends all to the login": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/login?next="+url.QueryEscape(r.RequestURI))
			w.WriteHeader(302)
		}, nil, nil, true},
		"one that repeats the path": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "GET" {
				return
			}
			page := "nothing at " + r.URL.Path
			if loose(r.URL.Path) {
				page = "<form action=" + r.RequestURI + "> " + time.Now().Format("05.000000000")
			}
			fmt.Fprint(w, page)
		}, []string{"/pay/", "/PAY", "/pay%2f"}, []string{"GET"}, false},
		"one that says the same to all": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, nil, nil, true},
		"one that redirects": {func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/pay":
			case loose(r.URL.Path):
				http.Redirect(w, r, "/pay", http.StatusMovedPermanently)
			default:
				w.WriteHeader(404)
			}
		}, nil, []string{"OPTIONS", "HEAD"}, false},
		"one with another page below": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/pay" && strings.Count(r.URL.Path, "/") < 2 {
				w.WriteHeader(404)
			}
		}, nil, []string{"OPTIONS", "HEAD"}, false},
		"PHP": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/pay" && !strings.HasPrefix(r.URL.Path, "/pay/") {
				w.WriteHeader(404)
			}
		}, []string{"/pay/", "/pay/x", "/pay//..", "/pay%2f"}, []string{"OPTIONS", "HEAD"}, false},
		"one that differs each time": {func() func(w http.ResponseWriter, r *http.Request) {
			n := 0
			return func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(200 + n%2) }
		}(), nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, c.serve)
			r := probe(t, shop(policy.Route{Match: "POST /pay"}), u.options(t))
			if got := passing(r); !slices.Equal(got, c.want) || !slices.Equal(r.Methods, c.methods) || (r.Unclear != "") != c.unclear {
				t.Errorf("%q by %v (%s), want %q by %v", got, r.Methods, r.Unclear, c.want, c.methods)
			}
			for _, line := range u.asked {
				if method, _, _ := strings.Cut(line, " "); method != "OPTIONS" && method != "HEAD" && method != "GET" {
					t.Errorf("it was sent %s", line)
				}
			}
		})
	}
}

// TestMissing: the path that surely does not exist.
func TestMissing(t *testing.T) {
	const none = "weir-probe-of-a-missing-path"
	for _, c := range []struct {
		path    string
		segment int
		want    string
	}{
		{"/pay", 1, "/" + none}, {"/api/", 1, "/" + none + "/"}, {"/api/users", 1, "/" + none + "/users"}, {"/a/7/c", 3, "/a/7/" + none}, {"/7", 0, "/" + none}, {"/7/", 0, "/" + none + "/"}, {"/", 0, "/" + none}, {"/", 1, "/" + none},
	} {
		if got := missing(c.path, c.segment); got != c.want {
			t.Errorf("%s, %d: %s, want %s", c.path, c.segment, got, c.want)
		}
	}
}

// TestRootOfUpstream: upstream_path may lead to the root of the upstream.
func TestRootOfUpstream(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(404)
		}
	})
	p := shop(policy.Route{Match: "/api/", Upstream: "u", UpstreamPath: "/"})
	p.Upstreams = []policy.Upstream{{Name: "u", URL: u.URL}}
	if r := probe(t, p, u.options(t)); r.Path != "/" || r.Unclear != "" || len(r.Methods) == 0 {
		t.Errorf("%+v", r)
	}
}

// TestVariables: any value of a variable may exist, so it is the name before it that is missing.
func TestVariables(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/item/") || strings.Count(r.URL.Path, "/") != 2 {
			w.WriteHeader(404)
		}
	})
	if r := probe(t, shop(policy.Route{Match: "/item/{id}"}), u.options(t)); r.Unclear != "" || len(passing(r)) > 0 || len(r.Alike) == 0 {
		t.Errorf("%+v", r)
	}
}

// TestPathsAreSentAsTheyAre: no client library cleans them up.
func TestPathsAreSentAsTheyAre(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/pay" {
			w.WriteHeader(404)
		}
	})
	probe(t, shop(policy.Route{Match: "/pay"}), u.options(t))
	for _, v := range policy.Variants("/pay") {
		if !slices.Contains(u.asked, "OPTIONS "+v.Path) {
			t.Errorf("%s was not sent", v.Path)
		}
	}
}

// TestOwnMethod: the probe sends the route's own method only with Options.OwnMethod, and without a body.
func TestOwnMethod(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" || !strings.EqualFold(r.URL.Path, "/pay") || r.ContentLength > 0 {
			w.WriteHeader(404)
		}
	})
	p := shop(policy.Route{Match: "POST /pay"})
	if r := probe(t, p, u.options(t)); r.Unclear == "" || len(r.Alike) > 0 {
		t.Errorf("%+v", r)
	}
	o := u.options(t)
	o.OwnMethod = true
	if r := probe(t, p, o); !slices.Equal(passing(r), []string{"/PAY"}) || !slices.Equal(r.Methods, []string{"POST"}) {
		t.Errorf("%+v", r)
	}
}

// TestWhatIsAsked: the host of a route, paths that exist, the header, and the path of the upstream.
func TestWhatIsAsked(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop.test" || r.Header.Get("Cookie") != "a=1" || !strings.HasPrefix(r.URL.Path, "/v2/item/42") {
			w.WriteHeader(404)
		}
	})
	o := u.options(t)
	o.Paths, o.Header = []string{"/item/42", "/else"}, http.Header{"Cookie": {"a=1"}}
	p := shop(policy.Route{Match: "shop.test/item/", Upstream: "u", UpstreamPath: "/v2/item/"}, policy.Route{Match: "other.test/", Upstream: "v"})
	p.Upstreams = []policy.Upstream{{Name: "u", Targets: []policy.Target{{URL: u.URL}}}, {Name: "v", URL: "http://127.0.0.1:1"}}
	r := probe(t, p, o)
	if r.Path != "/v2/item/42" || !slices.Equal(passing(r), []string{"/v2/item/42"}) {
		t.Errorf("%+v", r)
	}
}

// TestBounds: of requests, of time, and of an upstream that is down.
func TestBounds(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
	})
	o := u.options(t)
	o.Requests = 3
	if _, sent, err := Run(context.Background(), shop(policy.Route{Match: "/pay"}), o); sent != 3 || !errors.Is(err, ErrTooMany) {
		t.Error(sent, err)
	}
	o = u.options(t)
	o.Timeout = 20 * time.Millisecond
	if _, _, err := Run(context.Background(), shop(policy.Route{Match: "/slow"}), o); err == nil {
		t.Error("a slow upstream is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := Run(ctx, shop(policy.Route{Match: "/pay"}), u.options(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	u.Close()
	o.URL.User = url.UserPassword("u", "secret")
	if _, _, err := Run(context.Background(), shop(policy.Route{Match: "/pay"}), o); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestBrokenResponses: a variant to which the connection is closed is not served alike.
func TestBrokenResponses(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.RequestURI, "%00"):
			panic(http.ErrAbortHandler)
		case r.URL.Path != "/pay":
			w.WriteHeader(404)
		}
		json.NewEncoder(w).Encode("x")
	})
	u.Config.ErrorLog = nil
	if r := probe(t, shop(policy.Route{Match: "/pay"}), u.options(t)); len(r.Alike) == 0 || len(passing(r)) > 0 || r.Unclear != "" {
		t.Errorf("%+v", r)
	}
}

// TestUnprotectedRoutesAreNotAsked: neither those without limits, nor those that respond themselves.
func TestUnprotectedRoutesAreNotAsked(t *testing.T) {
	u := serve(t, func(http.ResponseWriter, *http.Request) {})
	p := shop(policy.Route{Match: "/pay", Respond: policy.Response{Status: 200}})
	if all, sent, err := Run(context.Background(), p, u.options(t)); len(all) != 0 || sent != 0 || err != nil {
		t.Error(all, sent, err)
	}
}
