package redis

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/weirredis"
)

// A failing Redis fails as many calls as it has errors, and then says that the visitor waits.
type failing struct {
	weirredis.Evaler
	errors []error
	calls  int
}

func (f *failing) Eval(ctx context.Context, _ weirredis.Call) (string, error) {
	if f.calls++; f.calls <= len(f.errors) {
		if err := f.errors[f.calls-1]; err != nil {
			return "", err
		}
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "1 7 2 3 0 0 0 0 5 6 0 0 0 0", nil
}

// TestPollIsRepeated: while there is time, a poll is repeated whose connection was lost, as when Redis restarts or
// stands still for a second. It used to fail at once, whatever the deadline: the visitor was told nothing new, and
// with on_failure: allow passed the queue.
func TestPollIsRepeated(t *testing.T) {
	lost, loading := io.EOF, errors.New("LOADING Redis is loading the dataset in memory")
	wrong := errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	for name, c := range map[string]struct {
		errors []error
		calls  int
		within time.Duration
		err    error
	}{
		"a connection is lost":                {[]error{lost}, 2, 2 * time.Millisecond, nil},
		"Redis restarts":                      {[]error{lost, lost, loading, errors.New("NOSCRIPT No matching script."), loading}, 6, 30 * time.Millisecond, nil},
		"no reply":                            {[]error{nil}, 1, time.Second, context.DeadlineExceeded},
		"Redis stays away":                    {repeated(lost, 1000), 24, time.Second, lost},
		"a reply that would be the same":      {[]error{wrong}, 1, 0, wrong},
		"a connection is lost, then an error": {[]error{lost, wrong}, 2, 2 * time.Millisecond, wrong},
	} {
		synctest.Test(t, func(t *testing.T) {
			redis := &failing{errors: c.errors}
			spec := room.Spec{Bucket: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, Idle: time.Hour, Session: time.Hour, EnterWithin: time.Hour, PollTimeout: time.Hour, MaxWaiting: 10}
			q, err := NewQueue(redis, spec, QueueOptions{Name: "sale", Deadline: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			a, err := q.Poll(t.Context(), room.Poll{ID: "a", Join: true})
			if !errors.Is(err, c.err) || err == nil && (a.State != room.Waiting || a.Place != 7) {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
			if took := time.Since(began); redis.calls != c.calls || took != c.within {
				t.Errorf("%s: %d calls within %v, want %d within %v", name, redis.calls, took, c.calls, c.within)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func repeated(err error, n int) []error {
	all := make([]error, n)
	for i := range all {
		all[i] = err
	}
	return all
}
