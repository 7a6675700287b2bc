package weirtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/weirflow/weir"
)

// vector is a line of testdata/guava.jsonl: recorded behaviour of Guava's RateLimiter.
type vector struct {
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
	} `json:"ops"`
}

// limit returns the vector's limit, at a rate.
func (v vector) limit(rate string) (weir.Limit, error) {
	r := weir.Unlimited
	if rate != "inf" {
		n, err := strconv.ParseInt(rate, 10, 64)
		if err != nil {
			return nil, err
		}
		r = weir.PerSecond(n)
	}
	if v.Kind == "warmup" {
		return weir.WarmUp{Rate: r, Period: time.Duration(v.WarmupUS) * time.Microsecond, ColdFactor: v.ColdFactor}, nil
	}
	return weir.SmoothBursty{Rate: r}, nil
}

// Vectors compares the SmoothBursty and WarmUp of a subject with Guava's, to the microsecond: at
// all rates of the vectors, permits come at whole microseconds. Conform calls it too, unless
// Subject.Limits is set.
func Vectors(t TB, s Subject) {
	t.Helper()
	f, err := Testdata().Open("guava.jsonl")
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	defer shut(f)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Errorf("guava.jsonl: %v", err)
			return
		}
		if err := s.vector(v); err != nil {
			t.Errorf("guava.jsonl: %s %s: %v", v.ID, v.Test, err)
		}
	}
}

// vector runs one vector.
func (s Subject) vector(v vector) error {
	l, err := v.limit(v.Rate)
	if err != nil {
		return err
	}
	clock := new(Clock)
	opened, err := s.Open(l, clock)
	if err != nil {
		return err
	}
	defer shut(opened)
	subject, ok := opened.(interface {
		Reserver
		Setter
	})
	if !ok {
		return nil // the subject does not support the verbs
	}
	if r, ok := subject.Reserve("", 1, -1); ok { // the first call, of which nothing else remains
		r.Cancel()
	}
	pass := func(us int64) { clock.Set(clock.Now() + us*int64(time.Microsecond)) }
	for i, op := range v.Ops {
		switch op.Op {
		case "created", "state":
		case "sleep_user":
			pass(op.US)
		case "setRate":
			next, err := v.limit(op.Rate)
			if err == nil {
				err = subject.SetLimit(next)
			}
			if err != nil {
				return err
			}
		case "acquire", "reserve", "tryAcquire":
			within := time.Duration(-1)
			if op.Op == "tryAcquire" {
				within = time.Duration(max(op.Timeout, 0)) * time.Microsecond
			}
			delay, err := reserve(subject, op.N, within)
			refused := op.Op == "tryAcquire" && !op.OK
			if want := time.Duration(op.WaitUS) * time.Microsecond; (err != nil) != refused || err == nil && delay != want {
				return fmt.Errorf("operation %d, %s %d: %v after %v; want %v after %v", i, op.Op, op.N, err == nil, delay, !refused, want)
			}
			if op.Op != "reserve" && !refused {
				pass(op.WaitUS)
			}
		default:
			return fmt.Errorf("operation %d is %q", i, op.Op)
		}
	}
	return nil
}

func reserve(s Reserver, cost int64, within time.Duration) (time.Duration, error) {
	r, ok := s.Reserve("", cost, within)
	if !ok {
		return 0, fmt.Errorf("refused: %+v", r.Decision())
	}
	return r.Delay(), nil
}
