package weirhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// TestSettle: the estimate is charged while the handler runs, and replaced by what it says; the first
// call wins, and without one the estimate stays.
func TestSettle(t *testing.T) {
	limit := weir.TokenBucket{Rate: weir.PerDay(1), Burst: 100}
	one, err := weir.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	perKey, err := keyed.New[string](limit, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer perKey.Close()
	shared, err := weir.NewShared(limit, weirtest.NewStore(new(weirtest.Clock).Now), weir.Named("shared"))
	if err != nil {
		t.Fatal(err)
	}
	leftInStore := func() int64 {
		d, err := shared.Peek(t.Context(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	for name, c := range map[string]struct {
		limiter weirhttp.Limiter
		left    func() int64
	}{
		"one":    {weirhttp.One(one), func() int64 { return one.Peek(1).Remaining }},
		"keyed":  {weirhttp.Keyed(perKey), func() int64 { return perKey.Peek("", 1).Remaining }},
		"shared": {shared, leftInStore},
	} {
		t.Run(name, func(t *testing.T) {
			var do func(ctx context.Context)
			options := []weirhttp.Option{weirhttp.Settled(), weirhttp.Cost(func(*http.Request) int64 { return 40 })}
			if name == "shared" { // on a busy machine, a call may take longer than the default deadline
				options = append(options, weirhttp.Fallback(failover.Options{OnFailure: failover.Local, Nodes: 1, Deadline: time.Minute}))
			}
			h := weirhttp.Limit(c.limiter, weirhttp.Global(), options...)(
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { do(r.Context()) }))
			want := c.left()
			serve := func(what string, spent int64, f func(ctx context.Context)) {
				t.Helper()
				do = func(ctx context.Context) {
					if got := c.left(); got != want-40 {
						t.Errorf("%s: %d left while the handler runs, want %d", what, got, want-40)
					}
					f(ctx)
				}
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
				if want -= spent; c.left() != want {
					t.Errorf("%s: %d left, want %d", what, c.left(), want)
				}
			}
			settles := func(actual int64, want bool) func(context.Context) {
				return func(ctx context.Context) {
					if got := weirhttp.Settle(ctx, actual); got != want {
						t.Errorf("Settle(%d) says %v", actual, got)
					}
				}
			}
			serve("less", 10, settles(10, true))
			serve("nothing", 0, settles(0, true))
			serve("not valid", 40, settles(-1, false))
			serve("twice", 1, func(ctx context.Context) { settles(1, true)(ctx); settles(30, false)(ctx) })
			serve("after the client has left", 2, func(ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				settles(2, true)(ctx)
			})
			serve("a panic", 40, func(context.Context) { panic(errors.New("the handler's")) })
			w := httptest.NewRecorder() // 7 are left
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != http.StatusTooManyRequests || c.left() != want {
				t.Errorf("refused: %d, %d left", w.Code, c.left())
			}
		})
	}
}

// TestSettleOfSeveral: one call settles the limits of all middlewares, and none without Settled.
func TestSettleOfSeveral(t *testing.T) {
	var all []*weir.Limiter
	next := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !weirhttp.Settle(r.Context(), 3) {
			t.Error("nothing is settled")
		}
	}))
	for i := range 3 {
		l, err := weir.New(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 100})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		options := []weirhttp.Option{weirhttp.Cost(func(*http.Request) int64 { return 50 }), weirhttp.Settled(), weirhttp.InContext()}
		if i == 1 {
			options = options[:1]
		}
		next = weirhttp.Limit(weirhttp.One(l), weirhttp.Global(), options...)(next)
	}
	next.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	for i, want := range []int64{97, 50, 97} {
		if got := all[i].Peek(1).Remaining; got != want {
			t.Errorf("limit %d: %d left, want %d", i, got, want)
		}
	}
	if weirhttp.Settle(t.Context(), 1) {
		t.Error("a context without a request settles something")
	}
}

func TestSettledNeedsOneLimit(t *testing.T) {
	l, err := weir.New(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"several": func() { weirhttp.Limit(weirhttp.One(l, l), weirhttp.Global(), weirhttp.Settled()) },
		"Wait": func() {
			weirhttp.Limit(weirhttp.One(l), weirhttp.Global(), weirhttp.Settled(), weirhttp.Wait(time.Second))
		},
		"with a pace": func() {
			weirhttp.NewTransport(nil, weirhttp.Pace(weirhttp.One(l), weirhttp.Global(), weirhttp.Settled()))
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
