package active

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/stores/product"
)

// Bounds of the lookups of API keys in a store.
const (
	maxKnownKeys   = 200_000 // remembered, about
	maxUnknownKeys = 20_000  // remembered as unknown, about
	maxLookups     = 256     // at once
	unknownPerSec  = 1000    // keys that are found unknown in the store, in each second
	maxPlans       = 1000    // whose names are remembered
	lookupPause    = 250 * time.Millisecond
)

// A keyStore looks up API keys in a store by their hashes, and remembers what it finds. It is safe for
// concurrent use.
type keyStore struct {
	log      *slog.Logger
	records  product.RecordKeeper
	store    *store // that has the records
	secret   string // that keys are hashed with
	settings policy.APIKeys
	deadline time.Duration // of a lookup
	now      func() time.Time
	guesses  *weir.Limiter // of lookups of keys that are not known
	counts   *keyCounts

	mu      sync.Mutex
	known   generations[policyfile.KeyHash, keyEntry]
	unknown generations[policyfile.KeyHash, time.Time] // when they were looked up
	plans   generations[string, string]                // by customer
	named   map[string]bool                            // plans that keys have
	lookups map[policyfile.KeyHash]*lookup
	paused  time.Time // until then no key is looked up: the store is unavailable
	failing bool      // the store is unavailable, and the log says so
	invalid time.Time // when the log last named an entry that is not valid
}

// keyCounts count lookups, across updates.
type keyCounts struct{ found, unknown, failed, refused atomic.Uint64 }

// A keyEntry is a key that was valid when it was last looked up.
type keyEntry struct {
	customer policy.Customer
	at       time.Time
}

// A lookup is a call of the store, which all requests with the key share.
type lookup struct {
	done     chan struct{}
	customer policy.Customer
	valid    bool
	err      error
}

var (
	errManyUnknown = errors.New("weir: too many unknown API keys: this one is not looked up now")
	errManyLookups = errors.New("weir: too many API keys are being looked up")
	errKeysDown    = errors.New("weir: API keys cannot be looked up: their store is unavailable")
)

// newKeyStore returns the keys in a store. now is the clock.
func newKeyStore(s *store, secret []byte, settings policy.APIKeys, log *slog.Logger, counts *keyCounts, now func() time.Time) (*keyStore, error) {
	records, ok := s.store.(product.RecordKeeper)
	if !ok {
		return nil, fmt.Errorf("plans.api_keys: the store %q keeps no API keys", s.def.Name)
	}
	guesses, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(unknownPerSec), Burst: unknownPerSec})
	if err != nil {
		return nil, err
	}
	settings.Refresh = cmp.Or(settings.Refresh, policy.DefaultKeyRefresh)
	settings.Stale = max(cmp.Or(settings.Stale, policy.DefaultKeyStale), settings.Refresh)
	return &keyStore{
		log: log, records: records, store: s, secret: string(secret), settings: settings, now: now, guesses: guesses, counts: counts,
		deadline: cmp.Or(s.def.Deadline, defaultLookup), lookups: map[policyfile.KeyHash]*lookup{},
		known:   generations[policyfile.KeyHash, keyEntry]{most: maxKnownKeys},
		unknown: generations[policyfile.KeyHash, time.Time]{most: maxUnknownKeys},
		plans:   generations[string, string]{most: maxKnownKeys}, named: map[string]bool{},
	}, nil
}

// defaultLookup is the deadline of lookups in a store without one of its own.
const defaultLookup = 20 * time.Millisecond

// find returns the customer of a key.
func (k *keyStore) find(ctx context.Context, key string) (policy.Customer, bool, error) {
	h := policyfile.HashAPIKey([]byte(k.secret), key)
	k.mu.Lock()
	now := k.now()
	known, isKnown := k.known.get(h)
	if isKnown && now.Sub(known.at) < k.settings.Refresh {
		k.mu.Unlock()
		return known.customer, true, nil
	}
	if at, ok := k.unknown.get(h); ok && now.Sub(at) < k.settings.Refresh {
		k.mu.Unlock()
		return policy.Customer{}, false, nil
	}
	l, err := k.join(h, isKnown, now)
	k.mu.Unlock()
	if err == nil {
		select {
		case <-l.done:
			if err = l.err; err == nil {
				return l.customer, l.valid, nil
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	switch {
	case isKnown && now.Sub(known.at) < k.settings.Stale:
		return known.customer, true, nil
	case k.settings.OnFailure == policy.KeysUnknown:
		return policy.Customer{}, false, nil
	}
	return policy.Customer{}, false, err
}

// errNotLookedUp is for a key of which nothing is remembered.
var errNotLookedUp = errors.New("weir: this API key was not looked up lately")

// peek returns what is remembered of a key, and looks nothing up.
func (k *keyStore) peek(key string) (policy.Customer, bool, error) {
	h := policyfile.HashAPIKey([]byte(k.secret), key)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if known, ok := k.known.peek(h); ok && now.Sub(known.at) < k.settings.Stale {
		return known.customer, true, nil
	}
	if at, ok := k.unknown.peek(h); ok && now.Sub(at) < k.settings.Refresh {
		return policy.Customer{}, false, nil
	}
	return policy.Customer{}, false, errNotLookedUp
}

// join returns the lookup of a key, and begins one if there is none. The lock is held. A lookup goes on
// when its requests have left: the next one needs its result.
func (k *keyStore) join(h policyfile.KeyHash, known bool, now time.Time) (*lookup, error) {
	if l := k.lookups[h]; l != nil {
		return l, nil
	}
	if now.Before(k.paused) {
		return nil, errKeysDown
	}
	if len(k.lookups) >= maxLookups {
		k.counts.refused.Add(1)
		return nil, errManyLookups
	}
	var guess weir.Reservation
	if !known {
		var ok bool
		if guess, ok = k.guesses.Reserve(1, 0); !ok {
			k.counts.refused.Add(1)
			return nil, errManyUnknown
		}
	}
	l := &lookup{done: make(chan struct{})}
	k.lookups[h] = l
	go k.run(h, l, guess)
	return l, nil
}

// run looks a key up.
func (k *keyStore) run(h policyfile.KeyHash, l *lookup, guess weir.Reservation) {
	ctx, cancel := context.WithTimeout(context.Background(), k.deadline)
	text, found, err := k.records.Record(ctx, h.String())
	cancel()
	if found && err == nil {
		l.customer, err = policyfile.ParseKeyRecord(text)
	}
	l.valid, l.err = found, err
	if found || err != nil {
		guess.Cancel() // only keys that are found unknown count against the bound
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lookups, h)
	if now := k.now(); err != nil {
		k.failed(err, found, now)
	} else {
		k.learn(h, l, now)
	}
	close(l.done)
}

// failed notes that a key could not be looked up. responded says that the store has an entry for it, which
// is not valid. The lock is held.
func (k *keyStore) failed(err error, responded bool, now time.Time) {
	k.counts.failed.Add(1)
	if responded {
		if now.Sub(k.invalid) > time.Minute {
			k.invalid = now
			k.log.Error("an API key in the store has an entry that is not valid: what was known of the key stays valid for a while",
				"store", k.store.def.Name, "error", err)
		}
		return
	}
	if k.paused = now.Add(lookupPause); !k.failing {
		k.failing = true
		k.log.Error("API keys cannot be looked up: those that were valid stay valid for a while", "store", k.store.def.Name,
			"stale", k.settings.Stale.String(), "error", err)
	}
}

// learn remembers the result of a lookup. The lock is held.
func (k *keyStore) learn(h policyfile.KeyHash, l *lookup, now time.Time) {
	if k.failing {
		k.failing = false
		k.log.Info("API keys are looked up again", "store", k.store.def.Name)
	}
	if !l.valid {
		k.counts.unknown.Add(1)
		k.known.remove(h)
		k.unknown.put(h, now)
		return
	}
	k.counts.found.Add(1)
	k.unknown.remove(h)
	k.known.put(h, keyEntry{l.customer, now})
	k.plans.put(l.customer.Name, l.customer.Plan)
	if len(k.named) < maxPlans {
		k.named[l.customer.Plan] = true
	}
}

// sameAs reports whether both find the same keys in the same way.
func (k *keyStore) sameAs(other *keyStore) bool {
	return k != nil && k.store == other.store && k.secret == other.secret && k.settings == other.settings
}

// planOf returns the plan of a customer whose key was looked up lately; empty for others.
func (k *keyStore) planOf(customer string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	plan, _ := k.plans.get(customer)
	return plan
}

// hasPlan reports whether a key that was looked up has a plan.
func (k *keyStore) hasPlan(plan string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.named[plan]
}

// len returns how many keys are remembered as valid.
func (k *keyStore) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known.len()
}
