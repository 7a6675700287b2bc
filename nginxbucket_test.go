package weir_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// limitReq is a port of ngx_http_limit_req_module for one key: its decision, the excess that it
// logs, and its delay.
type limitReq struct {
	rate, burst, delay int64 // in thousandths
	known              bool
	last, excess       int64
}

func (n *limitReq) request(now int64) (refused bool, excess, delay int64) {
	if !n.known {
		n.known, n.last, n.excess = true, now, 0
		return false, 0, 0
	}
	ms := max(now-n.last, 0)
	excess = max(n.excess-n.rate*ms/1000+1000, 0)
	if excess > n.burst {
		return true, excess, 0
	}
	n.excess = excess
	if ms > 0 {
		n.last = now
	}
	if excess > n.delay {
		delay = (excess - n.delay) * 1000 / n.rate
	}
	return false, excess, delay
}

// TestNginxBucketIsLimitReq: for random parameters and requests, the decision, the excess and the
// delay are nginx's.
func TestNginxBucketIsLimitReq(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refused, delayed, steps := 0, 0, 0
	for range 3000 {
		l := weir.NginxBucket{Rate: weir.PerSecond([]int64{1, 3, 10, 50, 999, 20_000}[r.IntN(6)]), Queue: r.Int64N(6)}
		rate := l.Rate.N * 1000
		if r.IntN(2) == 0 {
			l.Rate = weir.PerMinute([]int64{1, 7, 10, 30, 59, 61, 1000}[r.IntN(7)])
			rate = l.Rate.N * 1000 / 60
		}
		l.DelayAfter = r.Int64N(l.Queue + 1)
		p, err := weir.Prepare(l, time.Nanosecond)
		if err != nil {
			t.Fatal(err)
		}
		n, state, now := limitReq{rate: rate, burst: l.Queue * 1000, delay: l.DelayAfter * 1000}, []int64(nil), int64(0)
		for range 30 {
			switch pace := 1_000_000_000 * 1000 / rate; r.IntN(5) {
			case 0:
			case 1:
				now -= r.Int64N(3_000_000)
			default:
				now += r.Int64N(2*pace + 1)
			}
			ms := now / 1_000_000
			if now < 0 && now%1_000_000 != 0 {
				ms--
			}
			no, excess, delay := n.request(ms)
			var d weir.Decision
			state, d = p.Step(state, now, 1)
			if d.Allowed == no || l.Excess(d, 1) != excess || l.Delay(d, 1) != time.Duration(delay)*time.Millisecond {
				t.Fatalf("%+v at %d: %+v, excess %d, delay %v; nginx: refused %v, excess %d, delay %d ms",
					l, now, d, l.Excess(d, 1), l.Delay(d, 1), no, excess, delay)
			}
			if steps++; no {
				refused++
			} else if delay > 0 {
				delayed++
			}
		}
	}
	if refused < steps/10 || delayed < steps/10 {
		t.Errorf("of %d only %d were refused and %d delayed", steps, refused, delayed)
	}
}

// TestNginxBucketValidate: parameters that nginx cannot have are refused, and the error names them.
func TestNginxBucketValidate(t *testing.T) {
	for _, c := range []struct {
		limit weir.NginxBucket
		field string // empty: the limit is valid
	}{
		{weir.NginxBucket{Rate: weir.PerSecond(1)}, ""},
		{weir.NginxBucket{Rate: weir.PerMinute(10), Queue: 5, DelayAfter: 5}, ""},
		{weir.NginxBucket{}, "Rate"},
		{weir.NginxBucket{Rate: weir.PerHour(1)}, "Rate"},
		{weir.NginxBucket{Rate: weir.Rate{N: 2, Per: 2 * time.Second}}, "Rate"},
		{weir.NginxBucket{Rate: weir.PerSecond(1 << 60)}, "Rate"},
		{weir.NginxBucket{Rate: weir.PerSecond(1), Queue: -1}, "Queue"},
		{weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 1 << 62}, "Queue"},
		{weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 1 << 50}, "Queue"},
		{weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 3, DelayAfter: 4}, "DelayAfter"},
		{weir.NginxBucket{Rate: weir.PerSecond(1), DelayAfter: -1}, "DelayAfter"},
	} {
		err := c.limit.Validate()
		wrong, ok := err.(*weir.FieldError)
		if c.field == "" && err != nil || c.field != "" && (!ok || wrong.Field != c.field) {
			t.Errorf("%+v: %v", c.limit, err)
		}
	}
	if _, err := weir.Prepare(weir.NginxBucket{Rate: weir.PerSecond(1)}, 3*time.Microsecond); err == nil {
		t.Error("clock units of 3us make no millisecond, and there is no error")
	}
	a, b := weir.NginxBucket{Rate: weir.PerMinute(90)}, weir.NginxBucket{Rate: weir.PerMinute(90), Queue: 1}
	if weir.Equal(a, b) || !weir.Equal(weir.NginxBucket{Rate: weir.PerMinute(60)}, weir.NginxBucket{Rate: weir.PerSecond(1)}) {
		t.Error("60/m is 1/s, and another queue is another limit")
	}
}

// TestNginxBucketPeekSaysWhatTakeWill: Peek left out the delay and the excess of the request.
func TestNginxBucketPeekSaysWhatTakeWill(t *testing.T) {
	limit := weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 5}
	var clock weirtest.Clock
	l, err := weir.New(limit, weir.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	l.Take(1)
	for i, d := range []weir.Decision{l.Peek(1), l.Take(1)} {
		if delay, excess := limit.Delay(d, 1), limit.Excess(d, 1); delay != time.Second || excess != 1000 {
			t.Errorf("call %d: a delay of %v, an excess of %d: %+v", i, delay, excess, d)
		}
	}
	if d := l.Peek(0); d.Level != 2000 {
		t.Errorf("of no request it says what there is: %+v", d)
	}
}

// TestNginxBucketGivesBack: a cancelled reservation leaves the level as if it had never been made,
// also if another one was charged since.
func TestNginxBucketGivesBack(t *testing.T) {
	var clock weirtest.Clock
	l, err := weir.New(weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 4}, weir.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := l.Reserve(2, 0)
	clock.Set(int64(500 * time.Millisecond))
	a.Settle(1)
	if d := l.Peek(0); d.Level != 500 {
		t.Errorf("one of two was given back: %+v", d)
	}
	b, _ := l.Reserve(1, 0)
	c, _ := l.Reserve(1, 0)
	b.Cancel()
	if d := l.Peek(0); d.Level != 1500 {
		t.Errorf("the older of two was given back: %+v", d)
	}
	c.Cancel()
	if d := l.Peek(0); d.Level != 500 {
		t.Errorf("nothing was charged after: %+v", d)
	}
}
