package faces

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirclient"
)

// TestReservationsInAnOutage: a reservation that is settled or cancelled while the store hangs stays open,
// and the client gets an error. Once the store is back, the same call ends it, once.
func TestReservationsInAnOutage(t *testing.T) {
	store := servers.StartRedis(t, servers.RedisOptions{})
	w := start(t, "rate: 1/h, burst: 100", store.Addr, ", nodes: 1, on_failure: deny")
	ctx := t.Context()
	c, err := weirclient.New("http://"+w.ByFace["http"][0], weirclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	// a way to end a reservation of 10: its error says that the store is unavailable, or nothing
	type ending func() error
	verbs := map[string]struct {
		left int64
		open func(key string) (ending, bool)
	}{
		"JSON settle": {97, func(key string) (ending, bool) {
			a, err := w.post(ctx, "reserve", map[string]any{"limit": "api", "key": []string{key}, "cost": 10})
			return func() error {
				_, err := w.post(ctx, "settle", map[string]any{"reservation": a.Reservation, "cost": 3})
				return err
			}, err == nil && a.Allowed && a.Limits[0].Source == "store"
		}},
		"JSON cancel": {100, func(key string) (ending, bool) {
			a, err := w.post(ctx, "reserve", map[string]any{"limit": "api", "key": []string{key}, "cost": 10})
			return func() error {
				_, err := w.post(ctx, "cancel", map[string]any{"reservation": a.Reservation})
				return err
			}, err == nil && a.Allowed && a.Limits[0].Source == "store"
		}},
		"Redis protocol, settle": {75, func(key string) (ending, bool) {
			fields, err := w.command(ctx, "WEIR.RESERVE", "api", 1, key, "COST", 10)
			return func() error { return w.redis.Do(ctx, "WEIR.SETTLE", fields["id"], 25).Err() }, err == nil && fields["allowed"] == int64(1)
		}},
		"Redis protocol, cancel": {100, func(key string) (ending, bool) {
			fields, err := w.command(ctx, "WEIR.RESERVE", "api", 1, key, "COST", 10)
			return func() error { return w.redis.Do(ctx, "WEIR.CANCEL", fields["id"]).Err() }, err == nil && fields["allowed"] == int64(1)
		}},
		"Go client": {96, func(key string) (ending, bool) {
			r, err := c.Reserve(ctx, weirclient.ReserveOptions{Hold: time.Minute}, weirclient.Ask{Limit: "api", Key: []string{key}, Cost: 10})
			return func() error {
				err := r.Settle(ctx, 4)
				if err != nil && !errors.Is(err, weirclient.ErrUnavailable) {
					t.Errorf("errors.Is does not find ErrUnavailable in: %v", err)
				}
				return err
			}, err == nil && r.Allowed
		}},
	}
	ends := map[string]ending{}
	for name, verb := range verbs {
		servers.Poll(t, "the store reserves: "+name, func() (ok bool) {
			ends[name], ok = verb.open(name)
			return ok
		})
	}
	if err := store.Pause(); err != nil {
		t.Fatal(err)
	}
	for name, end := range ends {
		for range 3 { // the first ones are sent, and time out; then the breaker is open
			if err := end(); err == nil || !strings.Contains(err.Error(), "the store is unavailable: the reservation is still open, try again") {
				t.Errorf("%s in the outage: %v", name, err)
			}
		}
	}
	store.Resume()
	servers.Poll(t, "the store decides again", func() bool { return w.source("other") == "store" })
	for name, end := range ends {
		servers.Poll(t, "the store settles: "+name, func() bool { return end() == nil })
		if err := end(); name != "Go client" && err == nil {
			t.Errorf("%s: a reservation was ended twice", name)
		}
		if left := w.left(name); left != verbs[name].left {
			t.Errorf("%s: %d are left, not %d", name, left, verbs[name].left)
		}
	}
}
