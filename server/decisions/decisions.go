// Package decisions shows the decisions of a server as they are made: to operators who watch them, and to
// whatever else looks at them. Nothing of it makes a request wait.
package decisions

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/policy"
)

// Observers is the policy.Observer of a server. It is safe for concurrent use.
type Observers struct {
	Durations *Durations // not for changes

	secret atomic.Pointer[[]byte] // that keys are hashed with where they are not shown

	logMu   sync.Mutex // held by LogTo
	logging *logging   // nil for none

	latest latest

	watchers atomic.Pointer[[]*Watcher] // never changed in place
	mu       sync.Mutex                 // held while watchers is replaced
}

// MostWatchers is how many watchers there may be at once, besides that of the log.
const MostWatchers = 32

// ErrTooMany is the error of Watch if there are MostWatchers.
var ErrTooMany = errors.New("too many clients watch the decisions already: end one of them")

// New returns Observers that nobody watches.
func New() *Observers {
	o := &Observers{Durations: newDurations()}
	o.secret.Store(new([]byte(rand.Text())))
	o.watchers.Store(new([]*Watcher))
	o.latest.room.Store(keptAtOnce)
	return o
}

// Hash returns what stands for a key where it is not shown: equal keys have equal hashes as long as this
// process runs, and nobody outside can find a key by trying.
func (o *Observers) Hash(limit, key string) string {
	m := hmac.New(sha256.New, *o.secret.Load())
	_, _ = m.Write([]byte(limit + "\x00" + key)) // never an error
	return hex.EncodeToString(m.Sum(nil)[:8])
}

// Sees implements policy.Observer. While nobody watches, it reads one pointer of an admitted request. A decision for
// which no watcher has room is counted, and nothing is put together for it.
func (o *Observers) Sees(outcome policy.Outcome, limit string, shadow bool) bool {
	if refused(outcome) && o.latest.wants() {
		return true
	}
	all := *o.watchers.Load()
	for _, w := range all {
		if w.fits(outcome, limit, shadow) && w.hasRoom(outcome) {
			return true
		}
	}
	for _, w := range all {
		if w.fits(outcome, limit, shadow) {
			w.sort(outcome).lost.Add(1)
		}
	}
	return false
}

// Observe implements policy.Observer.
func (o *Observers) Observe(d policy.Observed) {
	e := Event{At: time.Now(), Observed: d}
	if e.IsRefused() {
		o.latest.keep(&e)
	}
	for _, w := range *o.watchers.Load() {
		w.take(&e)
	}
}

// Timed implements policy.Observer.
func (o *Observers) Timed(took time.Duration) {
	o.Durations.decision.Observe(took.Seconds())
	o.latest.refill(time.Now())
}

// Queued implements policy.Observer.
func (o *Observers) Queued(limit string, waited time.Duration) {
	o.Durations.queue.observe(limit, waited)
}

// Called notes how long a call of a store took.
func (o *Observers) Called(store string, took time.Duration) { o.Durations.store.observe(store, took) }

// Watch returns a watcher of the decisions that fit a filter. Close ends it.
func (o *Observers) Watch(f Filter) (*Watcher, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clients := 0
	for _, w := range *o.watchers.Load() {
		if !w.logs {
			clients++
		}
	}
	if clients >= MostWatchers {
		return nil, ErrTooMany
	}
	w := newWatcher(o, f)
	o.replace(nil, w)
	return w, nil
}

// replace puts a watcher in the place of another: at no time decisions go to both or to neither. Each of them may
// be nil. The lock is held.
func (o *Observers) replace(old, next *Watcher) {
	all := slices.DeleteFunc(slices.Clone(*o.watchers.Load()), func(w *Watcher) bool { return w == old })
	if next != nil {
		all = append(all, next)
	}
	o.watchers.Store(&all)
}

func (o *Observers) leave(w *Watcher) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replace(w, nil)
}

// Outcomes returns the outcomes that have the names allow, delay and deny. deny has those that are no
// limit's, too.
func Outcomes(names ...string) (all []policy.Outcome) {
	for _, name := range names {
		switch name {
		case "allow":
			all = append(all, policy.Allow)
		case "delay":
			all = append(all, policy.Delay)
		case "deny":
			all = append(all, policy.Deny, policy.Invalid, policy.UnknownCustomer, policy.UnverifiedCustomer, policy.Left)
		}
	}
	return all
}
