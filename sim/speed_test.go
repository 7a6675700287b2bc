package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// accessLog returns a log in the Combined format: a few clients send much, and many send little.
func accessLog(lines int, shuffled bool) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 1, 9999)
	all := make([]string, lines)
	for i := range all {
		c := zipf.Uint64()
		at := time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 10 * time.Millisecond)
		all[i] = fmt.Sprintf("10.0.%d.%d - - [%s] \"GET /shop/items/%d?page=%d HTTP/1.1\" 200 %d \"https://shop.example/search\" \"%s\"\n",
			c>>8, c&0xff, at.Format(clockText), r.IntN(50_000), r.IntN(10), r.IntN(40_000), "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0")
	}
	if shuffled {
		r.Shuffle(lines, func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return []byte(strings.Join(all, ""))
}

func BenchmarkParseLine(b *testing.B) {
	line, _, _ := strings.Cut(string(accessLog(1, false)), "\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseLine(line); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReplay replays 200,000 requests.
func BenchmarkReplay(b *testing.B) {
	const lines = 200_000
	for _, shuffled := range []bool{false, true} {
		log := accessLog(lines, shuffled)
		for _, decisions := range []io.Writer{nil, io.Discard} {
			b.Run(fmt.Sprintf("shuffled=%v,decisions=%v", shuffled, decisions != nil), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					o := Options{
						Policy:    perClient(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 20}),
						Inputs:    []Input{{"log", bytes.NewReader(log)}},
						Decisions: decisions,
					}
					if r, err := Replay(context.Background(), o); err != nil || r.Requests != lines {
						b.Fatal(r, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/request")
			})
		}
	}
}
