package sim

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// largeLines is how many lines TestLargeLog replays: 10,000,000 in make long.
var largeLines = flag.Int("lines", 200_000, "how many lines the log of TestLargeLog has")

// largeLine is a line of a log that was made: when, and which client.
type largeLine struct {
	second int64
	client int32
}

// largeLog calls use with the lines of a log: 100 in a second, of which every ninth is up to three seconds late. Some
// clients come much more often than others, and there are new ones until the end.
func largeLog(rng *rand.Rand, n int, use func(largeLine)) {
	const begin = 1_700_000_000
	for i := range n {
		l := largeLine{begin + int64(i)/100, int32(rng.ExpFloat64() * 300)}
		switch {
		case i%9 == 0:
			l.second -= rng.Int64N(4)
		case i%50 == 1:
			l.client = 1_000_000 + int32(i/50)
		}
		use(l)
	}
}

func (l largeLine) address() string {
	return fmt.Sprintf("10.%d.%d.%d", l.client>>16, l.client>>8&255, l.client&255)
}

// TestLargeLog: what is said of a large log, which is a little out of order, equals what is counted in another way: a
// bucket for each client that holds sixtieths of tokens, over all lines sorted by time. The heap stays small.
func TestLargeLog(t *testing.T) {
	raced.Skip(t)
	name := filepath.Join(t.TempDir(), "large.log")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	clock, shown := int64(0), ""
	largeLog(seeds.Of(t.Name()), *largeLines, func(l largeLine) {
		if l.second != clock {
			clock, shown = l.second, time.Unix(l.second, 0).UTC().Format(clockText)
		}
		fmt.Fprintf(w, "%s - - [%s] \"GET /a HTTP/1.1\" 200 5 \"-\" \"agent\"\n", l.address(), shown)
	})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	const rate, burst, minute = 10, 5, 60
	var heap uint64
	calls := 0
	r, err := Replay(t.Context(), Options{
		Policy: perClient(weir.TokenBucket{Rate: weir.PerMinute(rate), Burst: burst}), Inputs: []Input{{name, f}},
		Progress: func(int64, int64) {
			if calls++; calls%10 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = max(heap, m.HeapAlloc)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	type counted struct {
		tokens, last int64 // in sixtieths
		limited      int64
	}
	var lines []largeLine
	largeLog(seeds.Of(t.Name()), *largeLines, func(l largeLine) { lines = append(lines, l) })
	slices.SortStableFunc(lines, func(a, b largeLine) int { return cmp.Compare(a.second, b.second) })
	clients := map[int32]*counted{}
	allowed, limited, hit := int64(0), int64(0), int64(0)
	for _, l := range lines {
		c := clients[l.client]
		if c == nil {
			c = &counted{tokens: burst * minute, last: l.second}
			clients[l.client] = c
		}
		c.tokens = min(c.tokens+(l.second-c.last)*rate, burst*minute)
		c.last = l.second
		if c.tokens < minute {
			if c.limited++; c.limited == 1 {
				hit++
			}
			limited++
			continue
		}
		c.tokens -= minute
		allowed++
	}
	if r.Requests != int64(*largeLines) || r.Unparsed != 0 || r.Allowed != allowed || r.Limited != limited || limited == 0 {
		t.Errorf("%d requests, %d allowed, %d limited; want %d, %d, %d", r.Requests, r.Allowed, r.Limited, *largeLines, allowed, limited)
	}
	if r.Clients.Sampled || r.Clients.Seen != int64(len(clients)) || r.Clients.Limited != hit {
		t.Errorf("%d clients, %d limited; want %d, %d", r.Clients.Seen, r.Clients.Limited, len(clients), hit)
	}
	t.Logf("%d lines, %d clients: at most %d MiB of the heap", *largeLines, len(clients), heap>>20)
	if heap > 256<<20 {
		t.Errorf("the heap had %d bytes", heap)
	}
}
