package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/room"
)

// brokenLine is the queue of a waiting room that cannot be closed.
type brokenLine struct{ room.Queue }

func (brokenLine) Close() error { return errors.New("the line is stuck") }

// TestUpdateDoesNotFailAfterItsCommit: an error of the previous policy's parts is logged.
// Returning it would say that the new policy is not active, and the stores that it needs would be
// closed.
func TestUpdateDoesNotFailAfterItsCommit(t *testing.T) {
	up := httptest.NewServer(http.NotFoundHandler())
	defer up.Close()
	parse := func(text string) *policyfile.File {
		f, err := policyfile.Parse(filepath.Join(t.TempDir(), "policy.yaml"), []byte(strings.ReplaceAll(text, "URL", up.URL)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	p, err := active.New(t.Context(), parse("waiting_rooms: { r: { admit: 1/s } }\nupstreams: { up: { url: \"URL\" } }\nroutes: [{ match: /, upstream: up, waiting_room: r }]\n"), active.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g, err := New(t.Context(), p, log)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	old := g.state.Load().rooms["r"]
	old.queue = brokenLine{old.queue}
	next := parse("upstreams: { up: { url: \"URL\" } }\nroutes: [{ match: /, upstream: up }]\n")
	if err := p.Update(context.Background(), next); err != nil || p.File() != next || g.state.Load().file != next {
		t.Errorf("%v", err)
	}
	if !strings.Contains(text.String(), "the line is stuck") {
		t.Errorf("%s", text.String())
	}
}
