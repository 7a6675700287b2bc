package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/hook"
	"github.com/weirflow/weir/weirhttp"
)

// hookKind is the protocol by which a proxy asks about a request.
type hookKind uint8

const (
	hookNone  hookKind = iota
	hookAuth           // /auth: Traefik's ForwardAuth, Caddy's forward_auth, HAProxy: 204, or the refusal as clients get it
	hookNginx          // /auth/nginx: auth_request, which knows 2xx, 401 and 403 alone
	hookEnvoy          // /auth/envoy/...: ext_authz over HTTP, which sends the request itself with a path in front
)

// hookOf returns the hook that a request is sent to, and for hookEnvoy the target of the client's request,
// as it was sent: URL would have changed some.
func hookOf(r *http.Request) (kind hookKind, target string) {
	if rest, ok := strings.CutPrefix(r.RequestURI, "/auth/envoy"); ok && strings.HasPrefix(rest, "/") {
		return hookEnvoy, rest
	}
	switch r.URL.Path {
	case "/auth":
		return hookAuth, ""
	case "/auth/nginx":
		return hookNginx, ""
	}
	return hookNone, ""
}

// serveHook decides about the request that a proxy asks about.
func (f *Face) serveHook(w http.ResponseWriter, r *http.Request, kind hookKind, target string) {
	status := f.decideHook(w, r, kind, target)
	f.answers.WithLabelValues("auth", statusText(status)).Inc()
}

func (f *Face) decideHook(w http.ResponseWriter, r *http.Request, kind hookKind, target string) int {
	p := f.policy.Now()
	if wrong := f.misconfigured(r, &p.File.Policy, kind); wrong != nil {
		f.logMisconfigured(wrong)
		if kind == hookNginx {
			wrong.Status = http.StatusInternalServerError // a 403 from here would look like a limit's refusal
		}
		return f.refuse(w, wrong)
	}
	description, err := describe(r, kind, target)
	if err != nil {
		return answerHook(w, badRequest(err), kind)
	}
	request, err := description.Request(&p.File.Policy)
	if err != nil {
		return answerHook(w, badRequest(err), kind)
	}
	decided, err := f.hook.Decide(r.Context(), p, request)
	if err != nil {
		return f.refuse(w, &problem{Status: http.StatusServiceUnavailable, Detail: "no decision: the proxy left before it"})
	}
	return answerHook(w, decided, kind)
}

// misconfigured returns what is wrong with a proxy's configuration: no request of its clients
// causes such a problem.
func (f *Face) misconfigured(r *http.Request, p *policy.Policy, kind hookKind) *problem {
	if !weirhttp.Trusted(r, p.TrustedProxies) {
		return &problem{Status: http.StatusForbidden, Detail: "the caller is not one of trusted_proxies", Fix: "add the proxy's address to trusted_proxies in the policy"}
	}
	if refused := f.guard.Hook(r, hook.ClientField(p)); refused != nil {
		return &problem{Status: http.StatusForbidden, Detail: refused.Detail, Fix: refused.Fix}
	}
	if known := f.tokens.Load(); known != nil {
		if k := hookToken(known, r); k == nil || !k.may("hook") {
			return &problem{Status: http.StatusForbidden, Detail: "there is no valid token with the scope hook", Fix: "let the proxy send X-Weir-Token: TOKEN"}
		}
	}
	if kind != hookEnvoy && (!has(r, methodFields) || !has(r, targetFields)) {
		return &problem{Status: http.StatusForbidden, Detail: "the proxy does not say what was requested", Fix: "let the proxy set X-Forwarded-Method and X-Forwarded-Uri"}
	}
	return nil
}

// warnEvery is how often a misconfigured proxy is logged.
const warnEvery = time.Minute

// logMisconfigured logs what a proxy lacks: its clients see a refusal, and not why.
func (f *Face) logMisconfigured(p *problem) {
	now := time.Now().UnixNano()
	if last := f.warned.Load(); (last == 0 || now-last > int64(warnEvery)) && f.warned.CompareAndSwap(last, now) {
		f.log.Warn("a hook refuses a proxy", "listen", name, "problem", p.Detail, "fix", p.Fix)
	}
}

// hookToken returns the token of a proxy. Authorization is that of the request that the proxy asks
// about, so the proxy's own is in another field.
func hookToken(known *tokens, r *http.Request) *token {
	own := r.Header["X-Weir-Token"]
	if len(own) != 1 {
		return nil
	}
	return known.find(&http.Request{Header: http.Header{"Authorization": {"Bearer " + own[0]}}})
}

// methodFields, hostFields and targetFields are the header fields in which proxies say what was requested.
const (
	methodFields = "X-Forwarded-Method X-Original-Method"
	hostFields   = "X-Forwarded-Host X-Original-Host"
	targetFields = "X-Forwarded-Uri X-Original-Uri X-Original-Url"
)

func has(r *http.Request, fields string) bool {
	return slices.ContainsFunc(strings.Fields(fields), func(name string) bool { return len(r.Header[name]) > 0 })
}

// describe returns what a proxy says of the request that it asks about.
func describe(r *http.Request, kind hookKind, target string) (hook.Description, error) {
	d := hook.Description{Method: r.Method, Host: r.Host, Target: target, From: r}
	if kind != hookEnvoy {
		contradicts := false
		// the proxy writes one of the fields; another one that differs is the client's
		one := func(fields string) (value string) {
			for _, name := range strings.Fields(fields) {
				for _, v := range r.Header[name] {
					contradicts = contradicts || value != "" && v != value
					value = v
				}
			}
			return value
		}
		d.Method, d.Host, d.Target = one(methodFields), cmp.Or(one(hostFields), r.Host), one(targetFields)
		if contradicts {
			return d, &problem{Status: http.StatusBadRequest, Detail: "fields that say what was requested contradict each other: the proxy replaces X-Forwarded-Method, -Host and -Uri, and removes X-Original-*"}
		}
	}
	d.Header = r.Header.Clone()
	for name := range d.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || name == "X-Weir-Token" || slices.Contains(strings.Fields(methodFields+" "+hostFields+" "+targetFields), name) {
			delete(d.Header, name)
		}
	}
	return d, nil
}

func badRequest(err error) *hook.Response {
	return &hook.Response{Status: http.StatusBadRequest, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte(err.Error() + "\n")}
}

// refuse answers with a problem.
func (f *Face) refuse(w http.ResponseWriter, p *problem) int {
	status, body := p.encode(w.Header())
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return status
}

// answerHook writes the response that a proxy passes on to its client, or acts upon.
func answerHook(w http.ResponseWriter, decided *hook.Response, kind hookKind) int {
	for name, values := range decided.Header {
		w.Header()[name] = values
	}
	status := decided.Status
	if decided.Admitted {
		status = http.StatusNoContent
	}
	if kind == hookNginx {
		w.Header().Set("X-Ratelimit-Status", statusText(max(decided.Status, http.StatusOK)))
		if !decided.Admitted && status != http.StatusUnauthorized {
			status = http.StatusForbidden // auth_request turns every other status into 500
		}
	}
	w.WriteHeader(status)
	if !decided.Admitted {
		_, _ = w.Write(decided.Body)
	}
	return status
}
