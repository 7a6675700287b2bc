package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policyfile"
)

// failing is a face that a test can make fail.
type failing struct{ fail <-chan struct{} }

func (f failing) Addresses() []string { return []string{"nowhere"} }

func (f failing) Serve() error {
	<-f.fail
	return errors.New("it broke")
}

func (failing) Leave(bool)                     {}
func (failing) Draining() int                  { return 0 }
func (failing) Shutdown(context.Context) error { return nil }
func (failing) Close() error                   { return nil }

// TestManyFacesFailAtOnce: the first error ends the server, and the other faces can report theirs
// without blocking.
func TestManyFacesFailAtOnce(t *testing.T) {
	fail := make(chan struct{})
	var kinds []face.Kind
	listen := ""
	for i := range 8 {
		name := []string{"gateway", "admin", "rls", "resp"}[i%4]
		if i < 4 {
			listen += fmt.Sprintf("%s: \"127.0.0.1:0\", ", name)
		}
		kinds = append(kinds, face.Kind{Name: name, Open: func(context.Context, face.Host) (face.Face, error) { return failing{fail}, nil }})
	}
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "listen: { "+strings.TrimSuffix(listen, ", ")+" }\n")
	err := Serve(t.Context(), Options{Path: path, Log: slog.New(slog.DiscardHandler), kinds: kinds, Ready: func(Addresses) { close(fail) }})
	if err == nil || !strings.Contains(err.Error(), ": it broke") {
		t.Errorf("%v", err)
	}
}

// TestTokensNameLimitsOfEnvoysFiles: a token may be for a limit that a file of Envoy has. That was an error.
func TestTokensNameLimitsOfEnvoysFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), "domain: shop\ndescriptors: [{ key: user, limit: { token_bucket: { rate: 10/s, burst: 20 } } }]\n")
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, "listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml }, http: { address: \"127.0.0.1:0\", tokens: tokens.yaml } }\n")
	for limit, want := range map[string]string{"envoy/shop/user": "", "envoy/shop/users": "the policy has no limit"} {
		write(t, filepath.Join(dir, "tokens.yaml"), fmt.Sprintf("- { name: a, sha256: %x, scopes: [take], limits: [%s] }\n", sha256.Sum256([]byte("a long token of a test")), limit))
		file, err := policyfile.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := fmt.Sprint(Check(file)); (wrong == "[]") != (want == "") || !strings.Contains(wrong, want) {
			t.Errorf("%s: %s", limit, wrong)
		}
	}
}
