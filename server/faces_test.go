package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/face"
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
