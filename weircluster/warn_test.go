package weircluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirflow/weir/internal/pause"
)

// TestWarnOnce: the same is told once a minute, and strangers from many addresses cannot fill the log or the memory.
func TestWarnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{o: Options{Node: "10.0.0.1:1", Nodes: []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}}}
		var told []string
		n.OnWarning(func(text string) { told = append(told, text) })
		for range 3 {
			n.refused("10.0.0.2:1 - rid:4 - TLS route handshake error: " + errStranger.Error())
			n.refused("10.0.0.2:41234 - rid:5 - TLS route handshake error: remote error: tls: bad certificate")
			n.refused("10.0.0.2:41235 - rid:5 - TLS route handshake error: EOF")
		}
		if all := strings.Join(told, "\n"); len(told) != 2 || !strings.HasPrefix(told[0], "10.0.0.2:1 has another secret") || !strings.HasPrefix(told[1], "a node at 10.0.0.2 has") {
			t.Errorf("told %s", all)
		}
		_ = pause.For(t.Context(), warnAgain)
		for i := range 3 * mostWarned {
			n.refused(fmt.Sprintf("10.1.0.%d:9 - rid:4 - TLS route handshake error: %v", i, errStranger))
		}
		if len(told) != 2+mostWarned || len(n.warnings.told) != mostWarned {
			t.Errorf("told %d, %d kept, want %d", len(told), len(n.warnings.told), mostWarned)
		}
	})
}

// TestCompare: what is no list of nodes, the same list in another order, and this node's own are not told.
func TestCompare(t *testing.T) {
	for text, want := range map[string]string{
		`{"node":"b:1","nodes":["c:1","b:1","a:1"]}`:                        "",
		`{"node":"a:1","nodes":["x:1"]}`:                                    "",
		`{"node":"b:1","nodes":["x\n:1"]}`:                                  "",
		`{"node":"b:1","nodes":["x:1"` + strings.Repeat(`,"x:1"`, 9) + `]}`: "",
		`{"node":"b:1","nodes":["a:1","\u202eb:1"]}`:                        "",
		`{`: "",
		`{"node":"b:1","nodes":["a:1","b:1","d:1"]}`:             "b:1 has another list of nodes than this one: it lists d:1, this one does not; it does not list c:1.",
		`{"node":"c:1","nodes":["a:1","b:1","c:1","d:1","e:1"]}`: "c:1 has another list of nodes than this one: it lists d:1, e:1, this one does not.",
	} {
		n := &Node{o: Options{Node: "a:1", Nodes: []string{"a:1", "b:1", "c:1"}}} // it has told nothing yet
		told := ""
		n.OnWarning(func(text string) { told = text })
		n.compare([]byte(text))
		if (told == "") != (want == "") || !strings.HasPrefix(told, want) {
			t.Errorf("%s: %q, want %q", text, told, want)
		}
	}
}
