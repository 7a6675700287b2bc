package active

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// recordStore keeps records in memory, and counts lookups.
type recordStore struct {
	weir.Store
	mu      sync.Mutex
	records map[string]string
	lookups int
	down    error
	slow    chan struct{} // until it is closed, lookups wait; nil for no wait
}

func (*recordStore) Ready(context.Context) error { return nil }
func (*recordStore) Connected() bool             { return true }

func (s *recordStore) Record(ctx context.Context, name string) (string, bool, error) {
	s.mu.Lock()
	s.lookups++
	text, found := s.records[name]
	err, slow := s.down, s.slow
	s.mu.Unlock()
	if text == noText {
		return "", true, errors.New("no text")
	}
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	return text, found && err == nil, err
}

func (*recordStore) SetRecord(context.Context, string, string, time.Duration) error { return nil }
func (*recordStore) RemoveRecord(context.Context, string) (bool, error)             { return false, nil }
func (*recordStore) Records(context.Context, string, func(string) error) error      { return nil }

// lookedUp is a keyStore over a recordStore, in virtual time.
type lookedUp struct {
	*keyStore
	t     *testing.T
	in    *recordStore
	log   strings.Builder
	clock time.Time
}

func newLookedUp(t *testing.T, settings policy.APIKeys) *lookedUp {
	t.Helper()
	k := &lookedUp{t: t, in: &recordStore{records: map[string]string{}}, clock: time.Unix(1e9, 0)}
	s := &store{def: policy.Store{Name: "accounts", Deadline: 10 * time.Second}, store: k.in}
	var err error
	if k.keyStore, err = newKeyStore(s, []byte(hashSecret), settings, slog.New(slog.NewTextHandler(&k.log, nil)), new(keyCounts), func() time.Time { return k.clock }); err != nil {
		t.Fatal(err)
	}
	return k
}

// noText is the record of a recordStore that stands for something other than a text.
const noText = "no text"

// set writes the entry of a key.
func (k *lookedUp) set(key, entry string) {
	h := policyfile.HashAPIKey([]byte(hashSecret), key)
	k.in.records[h.String()] = entry
}

// remove removes the entry of a key.
func (k *lookedUp) remove(key string) {
	delete(k.in.records, policyfile.HashAPIKey([]byte(hashSecret), key).String())
}

// is checks what a key is found to be: a customer with a plan, "unknown", or "unavailable"; and how many
// times the store has been asked in all.
func (k *lookedUp) is(when, key, want string, lookups int) {
	k.t.Helper()
	got := "unknown"
	c, valid, err := k.find(context.Background(), key)
	switch {
	case err != nil:
		got = "unavailable"
	case valid:
		got = strings.TrimSuffix(c.Name+" "+c.Plan, " ")
	}
	if got != want || k.in.lookups != lookups {
		k.t.Errorf("%s: %s after %d lookups, want %s after %d", when, got, k.in.lookups, want, lookups)
	}
}

const acme = `{"customer":"acme","plan":"pro"}`

// TestPeekLooksNothingUp: a policy on trial sees what the active one has looked up, also a key that is known to be
// unknown, and looks nothing up itself.
func TestPeekLooksNothingUp(t *testing.T) {
	k := newLookedUp(t, policy.APIKeys{Refresh: 5 * time.Second, Stale: time.Minute})
	k.set("k-1", acme)
	peek := func(when, key, want string) {
		t.Helper()
		got := "unknown"
		c, valid, err := k.peek(key)
		switch {
		case err != nil:
			got = "unavailable"
		case valid:
			got = c.Name
		}
		if got != want || k.in.lookups > 2 {
			t.Errorf("%s: %s after %d lookups, want %s", when, got, k.in.lookups, want)
		}
	}
	peek("before", "k-1", "unavailable")
	peek("before", "k-2", "unavailable")
	k.is("a request", "k-1", "acme pro", 1)
	k.is("a request", "k-2", "unknown", 2)
	peek("after", "k-1", "acme")
	peek("after", "k-2", "unknown")
	k.clock = k.clock.Add(30 * time.Second)
	peek("when it is stale", "k-1", "acme")
	peek("when it is stale", "k-2", "unavailable")
	k.clock = k.clock.Add(time.Hour)
	peek("an hour later", "k-1", "unavailable")
}

// TestKeysInAStore: a key is looked up once in each refresh. New keys, other plans and removed keys
// count then.
func TestKeysInAStore(t *testing.T) {
	k := newLookedUp(t, policy.APIKeys{Refresh: 5 * time.Second})
	k.set("a", acme)
	k.is("first", "a", "acme pro", 1)
	k.is("again", "a", "acme pro", 1)
	k.is("a guess", "b", "unknown", 2)
	k.is("the same guess", "b", "unknown", 2)
	k.set("a", `{"customer":"acme"}`)
	k.set("b", `{"customer":"bob"}`)
	k.clock = k.clock.Add(5*time.Second - 1)
	k.is("within refresh", "a", "acme pro", 2)
	k.is("within refresh", "b", "unknown", 2)
	k.clock = k.clock.Add(1)
	k.is("after refresh, another plan", "a", "acme", 3)
	k.is("after refresh, a new key", "b", "bob", 4)
	k.remove("a")
	k.clock = k.clock.Add(5 * time.Second)
	k.is("removed", "a", "unknown", 5)
	if k.planOf("bob") != "" || k.planOf("acme") != "" || !k.hasPlan("pro") || k.hasPlan("gold") || k.len() != 1 {
		t.Errorf("%q, %q, %d", k.planOf("bob"), k.planOf("acme"), k.len())
	}
}

// TestKeysInAnOutage: while the store fails, keys that were valid stay valid for a while, and others
// are neither valid nor unknown. The store is asked at most once in each pause.
func TestKeysInAnOutage(t *testing.T) {
	for onFailure, other := range map[string]string{"": "unavailable", "unknown": "unknown"} {
		k := newLookedUp(t, policy.APIKeys{Refresh: 5 * time.Second, Stale: time.Minute, OnFailure: onFailure})
		k.set("a", acme)
		k.set("c", `{"customer":"carl"}`)
		k.is("first", "a", "acme pro", 1)
		k.is("first guess", "b", "unknown", 2)
		k.in.down = errors.New("refused")
		k.is("down, remembered", "a", "acme pro", 2)
		k.clock = k.clock.Add(6 * time.Second)
		k.is("down, known", "a", "acme pro", 3)
		k.is("down, within the pause", "a", "acme pro", 3)
		k.is("down, never seen", "c", other, 3)
		k.is("down, guessed before", "b", other, 3)
		k.clock = k.clock.Add(lookupPause)
		k.is("down, after the pause", "c", other, 4)
		k.clock = k.clock.Add(time.Minute - 6*time.Second - lookupPause - 1)
		k.is("down, just within stale", "a", "acme pro", 5)
		k.clock = k.clock.Add(1)
		k.is("down, beyond stale", "a", other, 5)
		k.in.down = nil
		k.clock = k.clock.Add(lookupPause)
		k.is("up again", "a", "acme pro", 6)
		k.is("up again", "c", "carl", 7)
		if text := k.log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "looked up again") != 1 {
			t.Errorf("the log:\n%s", text)
		}
	}
}

// TestGuessesAreBounded: a flood of guesses reaches the store with so many lookups a second and no more,
// is remembered in bounded memory, and takes nothing from keys that are known.
func TestGuessesAreBounded(t *testing.T) {
	k := newLookedUp(t, policy.APIKeys{})
	k.set("a", acme)
	k.is("first", "a", "acme pro", 1)
	refused := 0
	began := time.Now()
	for i := range 5000 {
		if _, valid, err := k.find(context.Background(), fmt.Sprint("guess", i)); err != nil {
			refused++
		} else if valid {
			t.Fatal("a guess is valid")
		}
	}
	most := unknownPerSec + int(time.Since(began).Seconds()*unknownPerSec) + 1
	if asked := k.in.lookups - 1; asked > most || asked < unknownPerSec || asked+refused != 5000 || k.counts.refused.Load() != uint64(refused) {
		t.Errorf("%d lookups and %d refused in %v, want at most %d lookups", asked, refused, time.Since(began), most)
	}
	before := k.in.lookups
	k.clock = k.clock.Add(policy.DefaultKeyRefresh)
	k.is("a known key in the flood", "a", "acme pro", before+1)
	for i := range 100_000 {
		k.mu.Lock()
		k.unknown.put(policyfile.KeyHash{byte(i), byte(i >> 8), byte(i >> 16)}, k.clock)
		k.known.put(policyfile.KeyHash{byte(i), byte(i >> 8), byte(i >> 16)}, keyEntry{})
		k.mu.Unlock()
	}
	if n := k.unknown.len(); n > maxUnknownKeys {
		t.Errorf("%d unknown keys are remembered", n)
	}
}

// TestOneLookupForMany: requests with one key that come while it is looked up share the lookup, also if
// the first of them leaves; beyond so many keys at once, none is looked up.
func TestOneLookupForMany(t *testing.T) {
	k := newLookedUp(t, policy.APIKeys{})
	k.set("a", acme)
	k.in.slow = make(chan struct{})
	gone, leave := context.WithCancel(context.Background())
	leave()
	if _, _, err := k.find(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has left: %v", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if c, valid, err := k.find(context.Background(), "a"); c.Name != "acme" || !valid || err != nil {
				t.Errorf("%+v, %t, %v", c, valid, err)
			}
		})
	}
	for i := range 2 * maxLookups {
		if _, _, err := k.find(gone, fmt.Sprint("guess", i)); i > maxLookups && !errors.Is(err, errManyLookups) {
			t.Fatalf("%d keys are being looked up, and one more is: %v", i, err)
		}
	}
	close(k.in.slow)
	all.Wait()
	k.in.mu.Lock()
	defer k.in.mu.Unlock()
	if k.in.lookups > maxLookups {
		t.Errorf("%d lookups at once", k.in.lookups)
	}
}

// TestEntriesThatAreNotValid: a key whose entry is spoilt stays what it was, other keys are looked up, and
// the log says so without the entry, once a minute.
func TestEntriesThatAreNotValid(t *testing.T) {
	k := newLookedUp(t, policy.APIKeys{Refresh: time.Second})
	k.set("a", acme)
	k.is("first", "a", "acme pro", 1)
	for i, entry := range []string{"the-key-itself", "", noText, `{"customer":""}`, `{"customer":7}`, `{}`, `[]`, `{"customer":"` + strings.Repeat("x", 300) + `"}`} {
		k.set("a", entry)
		k.set("b", entry)
		k.clock = k.clock.Add(time.Second)
		k.is(entry, "a", "acme pro", 2+3*i)
		k.is(entry, "b", "unavailable", 3+3*i)
		c := fmt.Sprint("c", i)
		k.set(c, acme)
		k.is(entry, c, "acme pro", 4+3*i)
	}
	if text := k.log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Contains(text, "itself") {
		t.Errorf("the log:\n%s", text)
	}
}
