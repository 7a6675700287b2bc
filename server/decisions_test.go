package server

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// streamed is an event of a stream of decisions.
type streamed struct {
	name string
	data struct {
		Decision, Limit, Route string
		KeyHash                string `json:"key_hash"`
		Key                    []string
		Cost, Capacity         int64
		Remaining              int64
		RetryAfter             *int64 `json:"retry_after_ms"`
		Banned                 bool
	}
}

// watch opens the stream, and returns its events; the channel is closed when it ends.
func (a api) watch(query string) <-chan streamed {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), "GET", a.url+"/v1/decisions"+query, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		a.t.Fatalf("%s: %s", query, resp.Status)
	}
	events := make(chan streamed, 1000)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		var e streamed
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e = streamed{name: name}
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(text), &e.data) == nil {
				events <- e
			}
		}
	}()
	return events
}

// next returns the next event.
func next(t *testing.T, events <-chan streamed) streamed {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("there is no event")
	}
	return streamed{}
}

// TestDecisionsAreStreamed: a client that watches sees decisions with what decided, and keys only if it asks
// for them; a shutdown ends the stream.
func TestDecisionsAreStreamed(t *testing.T) {
	_, _, r, a := controlled(t)
	masked, refused := a.watch("?shadow=no"), a.watch("?decision=deny&keys=1&limit=per-ip")
	for range 3 {
		fetch(t, "http://"+r.Gateway)
	}
	hash := ""
	for i, want := range []string{"allow", "allow", "deny"} {
		e := next(t, masked)
		if d := e.data; e.name != "decision" || d.Decision != want || d.Limit != "per-ip" || d.Route != "/" || d.Cost != 1 || d.Capacity != 2 || d.Remaining != int64(max(1-i, 0)) ||
			d.Key != nil || len(d.KeyHash) != 16 || (d.RetryAfter != nil) != (want == "deny") {
			t.Errorf("%d: %+v", i, e)
		}
		if hash != "" && hash != e.data.KeyHash {
			t.Errorf("one key has the hashes %s and %s", hash, e.data.KeyHash)
		}
		hash = e.data.KeyHash
	}
	if e := next(t, refused); e.data.Decision != "deny" || len(e.data.Key) != 1 || e.data.Key[0] != "127.0.0.1" || e.data.Banned {
		t.Errorf("%+v", e)
	}
	if got := a.ask("POST", "/v1/ban", `{"limit": "per-ip", "key": ["127.0.0.1"], "for": "1h"}`); got.Status != 200 {
		t.Fatal(got.text)
	}
	fetch(t, "http://"+r.Gateway)
	if e := next(t, refused); !e.data.Banned || e.data.Limit != "per-ip" || len(e.data.Key) != 1 {
		t.Errorf("%+v", e)
	}
	r.end(t)
	for range masked { // until it is closed
	}
}

// TestDecisionsRefuseNonsense: what cannot be watched is an error that says what can, and there are at most
// 32 watchers.
func TestDecisionsRefuseNonsense(t *testing.T) {
	_, _, _, a := controlled(t)
	for query, want := range map[string]string{
		"?limit=none": `no limit "none"`, "?decision=no": "allow, delay or deny", "?per_second=0": "from 1 to 10000", "?shadow=1": "write no, only", "?what=1": "there is no parameter",
	} {
		if got := a.ask("GET", "/v1/decisions"+query, ""); got.Status != 400 || !strings.Contains(got.Detail, want) {
			t.Errorf("%s: %+v", query, got)
		}
	}
	if got := (api{t: t, url: a.url}).ask("GET", "/v1/decisions", ""); got.Status != 401 {
		t.Errorf("without a token: %+v", got)
	}
	if got := a.ask("GET", "/v1/decisions", "", "Origin", "http://example.com"); got.Status != 403 {
		t.Errorf("from another origin: %+v", got)
	}
	for range 32 {
		a.watch("?decision=deny")
	}
	if got := a.ask("GET", "/v1/decisions", ""); got.Status != 503 {
		t.Errorf("a 33rd watcher: %+v", got)
	}
}
