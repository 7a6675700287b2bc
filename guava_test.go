package weir_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// guavaScript is a line of weirtest/testdata/guava.jsonl.
type guavaScript struct {
	ID         string  `json:"id"`
	Test       string  `json:"test"`
	Kind       string  `json:"kind"`
	Rate       string  `json:"rate"`
	WarmupUS   int64   `json:"warmup_us"`
	ColdFactor float64 `json:"cold_factor"`
	Ops        []struct {
		Op      string `json:"op"`
		N       int64  `json:"n"`
		WaitUS  int64  `json:"wait_us"`
		US      int64  `json:"us"`
		Rate    string `json:"rate"`
		OK      bool   `json:"ok"`
		Timeout int64  `json:"timeout"`
		Unit    string `json:"unit"`
	} `json:"ops"`
}

// limit is the script's limit, at a rate.
func (s guavaScript) limit(t *testing.T, rate string) weir.Limit {
	r := weir.Unlimited
	if rate != "inf" {
		n, err := strconv.ParseInt(rate, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r = weir.PerSecond(n)
	}
	if s.Kind == "warmup" {
		return weir.WarmUp{Rate: r, Period: time.Duration(s.WarmupUS) * time.Microsecond, ColdFactor: s.ColdFactor}
	}
	return weir.SmoothBursty{Rate: r}
}

// TestGuava: where permits come at whole microseconds, waits are Guava's to the microsecond.
func TestGuava(t *testing.T) {
	f, err := os.Open("weirtest/testdata/guava.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scripts := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s guavaScript
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		scripts++
		t.Run(s.ID+" "+s.Test, func(t *testing.T) {
			var clock weirtest.Clock
			l := newLimiter(t, s.limit(t, s.Rate), weir.WithClock(clock.Now))
			pass := func(us int64) { clock.Set(clock.Now() + us*int64(time.Microsecond)) }
			for i, op := range s.Ops {
				switch op.Op {
				case "acquire", "reserve":
					r, ok := l.Reserve(op.N, -1)
					if want := time.Duration(op.WaitUS) * time.Microsecond; !ok || r.Delay() != want {
						t.Errorf("operation %d, %s %d: %v, want %v", i, op.Op, op.N, r.Delay(), want)
					}
					if op.Op == "acquire" {
						pass(op.WaitUS)
					}
				case "tryAcquire":
					unit := map[string]time.Duration{"SECONDS": time.Second, "MILLISECONDS": time.Millisecond, "MICROSECONDS": time.Microsecond, "us": time.Microsecond}[op.Unit]
					if unit == 0 {
						t.Fatalf("unit %q", op.Unit)
					}
					r, ok := l.Reserve(op.N, max(time.Duration(op.Timeout)*unit, 0))
					if ok != op.OK || ok && r.Delay() != time.Duration(op.WaitUS)*time.Microsecond {
						t.Errorf("operation %d, tryAcquire %d: %v after %v", i, op.N, ok, r.Delay())
					}
					if ok {
						pass(op.WaitUS)
					}
				case "sleep_user":
					pass(op.US)
				case "setRate":
					if err := l.SetLimit(s.limit(t, op.Rate)); err != nil {
						t.Fatal(err)
					}
				case "created", "state":
				default:
					t.Fatalf("operation %d is %q", i, op.Op)
				}
			}
		})
	}
	if scripts < 11 {
		t.Errorf("only %d scripts were found", scripts)
	}
}
