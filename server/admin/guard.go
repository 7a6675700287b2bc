package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A guard decides who may come to the pages and to the API.
//
// On a loopback address without a token everybody on this machine may, which includes programs that
// others have sent: the pages in a browser. Those are kept out by the names by which they come (a
// name of their own, which they have made to mean 127.0.0.1), by what the browser says of where
// they come from, and by a Content-Type that they cannot send elsewhere unasked.
type guard struct {
	token  atomic.Pointer[[sha256.Size]byte] // nil for none
	remote bool                              // others can reach the address
	name   string                            // by which it is listened on
	cross  *http.CrossOriginProtection
}

// How long a request's body may take to come.
const bodyTime = 30 * time.Second

// newGuard returns the guard of an address, as the policy writes it.
func newGuard(listen string, remote bool) *guard {
	host, _, _ := net.SplitHostPort(listen)
	return &guard{remote: remote, name: host, cross: http.NewCrossOriginProtection()}
}

// setToken sets what requests have to bring; empty for nothing.
func (g *guard) setToken(token string) {
	if token == "" {
		g.token.Store(nil)
		return
	}
	sum := sha256.Sum256([]byte(token))
	g.token.Store(&sum)
}

// refuse says what a request lacks, or returns nil.
func (g *guard) refuse(r *http.Request) *problem {
	if p := g.foreign(r); p != nil {
		return p
	}
	if !g.knows(r) {
		return &problem{Status: http.StatusUnauthorized, Detail: "send the token of admin.token_file: Authorization: Bearer TOKEN"}
	}
	return nil
}

// foreign says why a request may be that of a web page in a browser, or returns nil.
func (g *guard) foreign(r *http.Request) *problem {
	switch {
	case !g.remote && !g.local(r.Host):
		return &problem{Status: http.StatusForbidden, Detail: "the name in Host is not one of this machine: use the address that the policy listens on, or localhost"}
	case g.cross.Check(r) != nil || r.Header.Get("Origin") != "" && !sameOrigin(r) || !slices.Contains([]string{"", "same-origin", "none"}, r.Header.Get("Sec-Fetch-Site")):
		return &problem{Status: http.StatusForbidden, Detail: "the request comes from a page of another origin"}
	}
	return nil
}

// local reports whether a Host is this machine.
func (g *guard) local(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") || g.name != "" && strings.EqualFold(host, g.name)
}

func sameOrigin(r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return r.Header.Get("Origin") == scheme+r.Host
}

// knows reports whether a request brings the token. How long that takes says nothing of it.
func (g *guard) knows(r *http.Request) bool {
	want := g.token.Load()
	if want == nil {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return strings.EqualFold(scheme, "Bearer") && len(r.Header["Authorization"]) == 1 && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// typed reports whether the body of a request is said to be one of some types. No form of a page
// elsewhere can say so.
func typed(r *http.Request, types ...string) bool {
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && len(r.Header["Content-Type"]) == 1 && slices.Contains(types, got)
}

// bounded bounds the body of a request in size and in time.
func bounded(w http.ResponseWriter, r *http.Request, size int64) {
	r.Body = http.MaxBytesReader(w, r.Body, size)
	// where there is none, as in tests, there is nothing to bound
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
}
