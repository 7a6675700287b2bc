package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/weirflow/weir/server/guard"
)

// An access decides who may use the pages and the API: web pages in browsers may not, and other
// programs need the token, if there is one.
type access struct {
	*guard.Guard
	token atomic.Pointer[[sha256.Size]byte] // nil for none
}

// newAccess returns the access to an address, as the policy writes it.
func newAccess(listen string) *access { return &access{Guard: guard.ForPages(listen)} }

// setToken sets the token that requests need; empty for none.
func (a *access) setToken(token string) {
	if token == "" {
		a.token.Store(nil)
		return
	}
	sum := sha256.Sum256([]byte(token))
	a.token.Store(&sum)
}

// refuse says what a request lacks, or returns nil.
func (a *access) refuse(r *http.Request) *problem {
	if p := a.foreign(r); p != nil {
		return p
	}
	if !a.knows(r) {
		return &problem{Status: http.StatusUnauthorized, Detail: "send the token of admin.token_file: Authorization: Bearer TOKEN"}
	}
	return nil
}

// foreign says why a request may be that of a web page in a browser, or returns nil.
func (a *access) foreign(r *http.Request) *problem {
	if refused := a.Page(r); refused != nil {
		return &problem{Status: http.StatusForbidden, Detail: refused.Error()}
	}
	return nil
}

// knows reports whether a request has the token. How long that takes says nothing of it.
func (a *access) knows(r *http.Request) bool {
	want := a.token.Load()
	if want == nil {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return strings.EqualFold(scheme, "Bearer") && len(r.Header["Authorization"]) == 1 && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}
