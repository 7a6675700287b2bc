package weircluster

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// TestServerThatGaveUp: a server that could not write, as on a full disk, has stopped keeping states. It starts again
// once it can write, and not before, with the states that it had.
func TestServerThatGaveUp(t *testing.T) {
	// a node alone listens nowhere
	n, err := Embed(Options{Nodes: []string{"127.0.0.1:6222"}, Folder: t.TempDir(), Files: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var mu sync.Mutex
	var told []string
	n.OnWarning(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, text)
	})
	hasTold := func(part string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(told, "\n"), part)
	}
	states := driver{n}
	keeps := func(key, value string, write bool) bool { // a write whose reply is lost has been made, too
		if write {
			_, _, _ = states.CompareAndSwap(t.Context(), key, 0, []byte(value), time.Hour)
		}
		item, err := states.Get(t.Context(), key)
		return err == nil && string(item.Value) == value
	}
	eventually(t, "a first state", func() bool { return keeps("first", "1", true) })

	first := n.running.Load()
	folder := n.o.ownFolder()
	aside := folder + "-aside" // it cannot be written in a folder that is not there, also as root
	if err := os.Rename(folder, aside); err != nil {
		t.Fatal(err)
	}
	if err := first.server.ShutdownJetStream(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the warning", func() bool { return hasTold("keeps no states until it can write") })
	if n.running.Load() != first {
		t.Error("it has started again where it cannot write")
	}
	if err := os.Rename(aside, folder); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another server", func() bool { r := n.running.Load(); return r != nil && r != first })
	eventually(t, "the state from before", func() bool { return keeps("first", "1", false) })
	eventually(t, "a second state", func() bool { return keeps("second", "2", true) })
	if !hasTold("starts again") {
		t.Errorf("told %q", told)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		if pause.For(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
