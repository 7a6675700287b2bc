package adaptive

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// TestRateAgreesWithTheSDKs: the numbers of the tests that the AWS SDKs have in common.
func TestRateAgreesWithTheSDKs(t *testing.T) {
	now := int64(0)
	r, err := NewRate(RateOptions{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	r.bucket = 0
	for _, step := range []struct {
		refused        bool
		at, sent, fill float64
	}{
		{false, 0.2, 0.000000, 0.500000},
		{false, 0.4, 0.000000, 0.500000},
		{false, 0.6, 4.800000, 0.500000},
		{false, 0.8, 4.800000, 0.500000},
		{false, 1.0, 4.160000, 0.500000},
		{false, 1.2, 4.160000, 0.691200},
		{false, 1.4, 4.160000, 1.097600},
		{false, 1.6, 5.632000, 1.638400},
		{false, 1.8, 5.632000, 2.332800},
		{true, 2.0, 4.326400, 3.028480},
		{false, 2.2, 4.326400, 3.486639},
		{false, 2.4, 4.326400, 3.821874},
		{false, 2.6, 5.665280, 4.053386},
		{false, 2.8, 5.665280, 4.200373},
		{false, 3.0, 4.333056, 4.282037},
		{true, 3.2, 4.333056, 2.997426},
		{false, 3.4, 4.333056, 3.452226},
	} {
		now = int64(math.Round(step.at * 1e9))
		o := weir.OK
		if step.refused {
			o = weir.Dropped
		}
		r.inUse = true
		Turn{r: r, cuts: r.cuts}.Done(o)
		if fill, limited := r.PerSecond(); math.Abs(r.sent-step.sent) > 1e-6 || limited && math.Abs(fill-step.fill) > 1e-6 {
			t.Errorf("at %g s: %f are sent, and the rate is %f, want %f and %f", step.at, r.sent, fill, step.sent, step.fill)
		}
	}
	// the curve after a refusal at 5 s at 10 requests a second
	r.highest, r.refused, r.sent = 10, 5, 1000
	for at, want := range map[float64]float64{5: 7, 6: 9.64893600966, 7: 10.000030849917364, 8: 10.453284520772092, 9: 13.408697022224185, 10: 21.26626835427364, 11: 36.425998516920465} {
		r.inUse = true
		r.accept(int64(at * 1e9))
		if math.Abs(r.fill-want) > 1e-6 {
			t.Errorf("at %g s: %f, want %f", at, r.fill, want)
		}
	}
}

func TestInvalidRates(t *testing.T) {
	for _, o := range []RateOptions{{Min: -1}, {Min: math.NaN()}, {Min: 2, Max: 1}, {Max: -1}, {Max: math.NaN()}, {Max: math.Inf(1)}} {
		if _, err := NewRate(o); err == nil {
			t.Errorf("%+v has no error", o)
		}
	}
	if r, err := NewRate(RateOptions{Max: 0.1}); err != nil || r.opts.Min != 0.1 {
		t.Error(err)
	}
}

// An api admits perSec requests per second, and refuses the others.
type api struct {
	perSec           float64
	tokens           float64
	last             time.Time
	accepted, denied int
}

func (a *api) call() weir.Outcome {
	now := time.Now()
	a.tokens = min(a.tokens+now.Sub(a.last).Seconds()*a.perSec, a.perSec/10)
	a.last = now
	if a.tokens < 1 {
		a.denied++
		return weir.Dropped
	}
	a.tokens--
	a.accepted++
	return weir.OK
}

// TestRateFindsItself: clients that want more than an API admits get nearly all that it admits, with
// few refusals, also after the API has changed; and each of them gets as much as the others.
func TestRateFindsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRate(RateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		server := &api{perSec: 100, last: time.Now()}
		var mu sync.Mutex
		const clients = 20
		var each [clients]int
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for ctx.Err() == nil {
					turn, err := r.Enter(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					o := server.call()
					each[i]++
					mu.Unlock()
					<-time.After(20 * time.Millisecond)
					turn.Done(o)
				}
			})
		}
		for _, perSec := range []float64{100, 30, 300} {
			mu.Lock()
			server.perSec = perSec
			mu.Unlock()
			<-time.After(20 * time.Second)
			mu.Lock()
			server.accepted, server.denied, each = 0, 0, [clients]int{}
			mu.Unlock()
			<-time.After(60 * time.Second)
			mu.Lock()
			served, denied := float64(server.accepted)/60/perSec, float64(server.denied)/float64(server.accepted+server.denied)
			least, most := each[0], each[0]
			for _, n := range each {
				least, most = min(least, n), max(most, n)
			}
			if served < 0.8 || denied > 0.1 || least < most*9/10-2 {
				t.Errorf("%g/s: %.1f %% are used, %.1f %% are refused, and clients had %d to %d", perSec, 100*served, 100*denied, least, most)
			}
			mu.Unlock()
		}
		cancel()
		all.Wait()
	})
}

// TestManyRefusalsAreOne: requests that are in flight when the rate falls lower it once.
func TestManyRefusalsAreOne(t *testing.T) {
	now := int64(0)
	r, _ := NewRate(RateOptions{Clock: func() int64 { return now }})
	var all []Turn
	for range 2000 {
		now += 1e6
		turn, err := r.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		turn.Done(weir.OK)
	}
	for range 50 {
		turn, _ := r.Enter(t.Context())
		all = append(all, turn)
	}
	for _, turn := range all {
		turn.Done(weir.Dropped)
	}
	if got, _ := r.PerSecond(); got < 600 || got > 800 {
		t.Errorf("after 50 refusals at 1000/s the rate is %g", got)
	}
	// a rest of an hour changes nothing
	before, _ := r.PerSecond()
	now += int64(time.Hour)
	for range 10 {
		turn, _ := r.Enter(t.Context())
		turn.Done(weir.OK)
	}
	if got, _ := r.PerSecond(); got != before {
		t.Errorf("the rate was %g, and is %g after a rest", before, got)
	}
}

// TestRateWaits: until the turn has come, not past the deadline, and not in a pause.
func TestRateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewRate(RateOptions{Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		enter := func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			_, err := r.Enter(ctx)
			return time.Since(began).Round(time.Millisecond), err
		}
		if d, err := enter(t.Context()); d != 0 || err != nil {
			t.Error(d, err)
		}
		if d, err := enter(t.Context()); d != time.Second || err != nil {
			t.Error(d, err)
		}
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if d, err := enter(short); d != 0 || !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(d, err)
		}
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		if d, err := enter(left); d != 500*time.Millisecond || !errors.Is(err, context.Canceled) {
			t.Error(d, err)
		}
		r.Pause(time.Minute)
		r.Pause(time.Second)
		if d, err := enter(t.Context()); d != time.Minute || err != nil {
			t.Error(d, err)
		}
		if err := r.Do(t.Context(), func(context.Context) error { return weir.ErrLimited }); !errors.Is(err, weir.ErrLimited) {
			t.Error(err)
		}
		Turn{}.Done(weir.OK)
	})
}
