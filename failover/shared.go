package failover

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/attached"
)

// A SharedFallback is a *weir.Shared of a program, with a fallback that all middlewares of the
// program share. If each had its own, each would admit the whole share of this process.
type SharedFallback struct {
	from, over *weir.Shared
	options    Options // as they were given
}

// ForShared returns the fallback of a limit, and makes it at the first call. It needs no Close, and
// so it has no heartbeats: Options.Nodes says how many nodes there are. A store that has a fallback
// already keeps it.
//
// The error says which option is invalid, or that the limit has a fallback with other options. Of
// OnTransition, only the code can be compared, and not the variables that it uses.
func ForShared(l *weir.Shared, o Options) (*SharedFallback, error) {
	for store := l.Store(); store != nil; {
		if _, ok := store.(*Store); ok {
			return &SharedFallback{from: l, over: l}, nil
		}
		wrapper, ok := store.(interface{ Unwrap() weir.Store })
		if !ok {
			break
		}
		store = wrapper.Unwrap()
	}
	f, err := attached.Of(l.Attached(), func() (*SharedFallback, error) { return newSharedFallback(l, o) })
	switch {
	case err != nil:
		return nil, err
	case !sameOptions(f.options, o):
		return nil, fmt.Errorf("weir: another middleware of the limit %q has another fallback: pass the same Fallback to both, or make a weir.Shared with another name", l.Name())
	}
	return f, nil
}

// sameOptions reports whether two fallbacks are the same.
func sameOptions(a, b Options) bool {
	if !maps.Equal(a.ByName, b.ByName) || reflect.ValueOf(a.OnTransition).Pointer() != reflect.ValueOf(b.OnTransition).Pointer() {
		return false
	}
	a.ByName, a.OnTransition, b.ByName, b.OnTransition = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func newSharedFallback(l *weir.Shared, o Options) (*SharedFallback, error) {
	store, err := New(withoutBeats(l.Store()), o)
	if err != nil {
		return nil, err
	}
	over, err := weir.NewShared(l.Limit(), store, weir.Named(l.Name()))
	if err != nil {
		return nil, err
	}
	o.ByName = maps.Clone(o.ByName) // the caller may change it
	return &SharedFallback{from: l, over: over, options: o}, nil
}

// Shared returns the limit over the store with the fallback. Its parameters are those of the limit
// that ForShared was given, also after a SetLimit there. Call Shared for each decision.
func (f *SharedFallback) Shared() *weir.Shared {
	if f.over != f.from {
		if next := f.from.Limit(); !weir.Equal(next, f.over.Limit()) {
			_ = f.over.SetLimit(next) // from has accepted it
		}
	}
	return f.over
}

// withoutBeats returns a store without heartbeats. These need a goroutine that ends with Close, and
// a SharedFallback has no Close.
func withoutBeats(store weir.Store) weir.Store {
	hidden := quiet{store}
	for {
		if can, ok := store.(Pinger); ok {
			return pingable{hidden, can}
		}
		wrapper, ok := store.(interface{ Unwrap() weir.Store })
		if !ok {
			return hidden
		}
		store = wrapper.Unwrap()
	}
}

// pingable is a quiet store that can be probed.
type pingable struct {
	quiet
	Pinger
}

// quiet is a store that cannot be unwrapped.
type quiet struct{ weir.Store }

// Close leaves the store open: it is the user's.
func (quiet) Close() error { return nil }

// TryNow decides by leased tokens, if the store has any.
func (q quiet) TryNow(c *weir.Charge, d *weir.Decision) bool {
	can, ok := q.Store.(Instant)
	return ok && can.TryNow(c, d)
}
