package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSentAgain: a call that is sent again with its key, also at the same time, is charged once; the
// answer is the same, and another call with the key is refused.
func TestSentAgain(t *testing.T) {
	s := serve(t, limits, "", nil)
	one := `{"limit": "monthly", "key": ["a", "api"]}`
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if status, _, _ := s.call("POST", "/v1/take", one, "Idempotency-Key", "k1"); status == 200 {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if _, _, text := s.call("GET", "/v1/usage?key=a&key=api", ""); allowed.Load() != 80 || !strings.Contains(text, `"used":1,`) {
		t.Errorf("%d were allowed, %s", allowed.Load(), text)
	}
	if status, out := s.post("take", `{"limit": "monthly", "key": ["b", "api"]}`, "Idempotency-Key", "k1"); status != 422 {
		t.Errorf("%d %v", status, out)
	}
	if status, _ := s.post("take", `{"limit": "none"}`, "Idempotency-Key", "k2"); status != 404 {
		t.Errorf("%d", status)
	}
	if status, _ := s.post("take", one, "Idempotency-Key", "k2"); status != 200 {
		t.Errorf("a call that failed took its key: %d", status)
	}
}

// TestFailedCallsAreNotRemembered: a call that failed leaves nothing behind, and its answer repeats
// little of a long body. Otherwise a client could fill the memory.
func TestFailedCallsAreNotRemembered(t *testing.T) {
	s := serve(t, limits, "", nil)
	long := strings.Repeat("x", 500_000)
	for i, body := range []string{`{"` + long + `": 1}`, `{"limit": "` + long + `"}`, `{"limit": "a", "` + long + `": 1, "` + long + `": 1}`, `{"limit": "monthly", "key": ["` + long + `"]}`} {
		if status, _, text := s.call("POST", "/v1/take", body, "Idempotency-Key", fmt.Sprint("k", i)); status < 400 || len(text) > 2000 {
			t.Errorf("body %d: %d with %d bytes", i, status, len(text))
		}
	}
	r := s.replays
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byKey) != 0 || r.order.Len() != 0 || r.size != 0 || len(r.uses) != 0 {
		t.Errorf("%d and %d calls are remembered", len(r.byKey), r.order.Len())
	}
}

// TestOneCallerLeavesRoom: a caller that sends as many calls with keys as it can leaves room for the
// others, and all of it comes back after a minute.
func TestOneCallerLeavesRoom(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := newReplays(func() time.Time { return now })
	keep := func(caller string, n, size int) (kept int) {
		for i := range n {
			p, first, err := m.begin(caller, fmt.Sprint(i), [32]byte{})
			if err != nil || !first {
				return kept
			}
			p.reply = &reply{body: make([]byte, size)}
			m.end(p)
			kept++
		}
		return kept
	}
	const most = maxReplaySum / callerShare >> 20
	if n := keep("greedy", 1000, 1<<20); n != 1000 || m.uses["greedy"].calls != most || m.uses["greedy"].size != most<<20 {
		t.Errorf("%d of %d answers of 1 MiB are kept for one caller", m.uses["greedy"].calls, n)
	}
	for key, again := range map[string]bool{"0": false, "999": true} { // the oldest are forgotten
		if p, first, err := m.begin("greedy", key, [32]byte{}); err != nil || first == again {
			t.Errorf("%s: %v %v", key, first, err)
		} else if first {
			m.end(p)
		}
	}
	if n := keep("other", 100, 100); n != 100 {
		t.Errorf("another caller has room for %d", n)
	}
	var open []*replay
	for i := range maxReplays / callerShare {
		p, _, err := m.begin("slow", fmt.Sprint(i), [32]byte{})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, p)
	}
	if _, _, err := m.begin("slow", "one more", [32]byte{}); err == nil {
		t.Error("a caller has more calls in flight than its share")
	}
	for _, p := range open {
		m.end(p)
	}
	now = now.Add(rememberFor)
	m.sweep()
	if len(m.byKey) != 0 || m.order.Len() != 0 || m.size != 0 || len(m.uses) != 0 {
		t.Errorf("%d calls, %d bytes and %d callers are remembered", len(m.byKey), m.size, len(m.uses))
	}
}
