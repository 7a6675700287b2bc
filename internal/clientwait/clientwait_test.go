package clientwait_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/internal/clientwait"
)

// TestSlow: a client that takes a second or more to take the response is told of once: while one write lasts, or
// when many of them have together. A service that is slow itself is not.
func TestSlow(t *testing.T) {
	const large = 32 << 10
	for name, c := range map[string]struct {
		work, write   time.Duration // before each write, and of it
		bytes, writes int
		want          time.Duration // when; 0: never
	}{
		"one write":         {0, time.Minute, large, 1, time.Second},
		"a flush":           {0, time.Minute, -1, 1, time.Second},
		"many":              {100 * time.Millisecond, 300 * time.Millisecond, large, 10, 1600 * time.Millisecond},
		"a slow service":    {time.Second, 300 * time.Millisecond, large, 10, 0},
		"a short response":  {0, time.Minute, 100, 1, 0},
		"less than a while": {0, 900 * time.Millisecond, large, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, at, told := time.Now(), time.Duration(0), 0
				w := clientwait.New(func() { at = time.Since(began); told++ })
				for range c.writes {
					time.Sleep(c.work)
					_ = w.Write(c.bytes, func() error { time.Sleep(c.write); return nil })
				}
				w.End()
				time.Sleep(time.Hour)
				synctest.Wait()
				if at != c.want || told > 1 {
					t.Errorf("told %d times, after %v; want %v", told, at, c.want)
				}
			})
		})
	}
}
