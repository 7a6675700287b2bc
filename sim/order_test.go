package sim

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

func shown(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339Nano) }

func statusText(n int32) string { return strconv.Itoa(int(n)) }

// TestOrders: logs that are in order, nearly so, or not at all give the same counts, whether they can be
// read twice or not, and however many files they are in.
func TestOrders(t *testing.T) {
	rng := seeds.Of(t.Name())
	t.Logf("WEIR_SEED=%s", seeds.Text())
	type line struct {
		second int
		text   string
	}
	for _, disorder := range []int{0, 3, 500, 1 << 30} {
		var lines []line
		for i := range 3000 {
			second := i / 3
			lines = append(lines, line{second, logLine(fmt.Sprintf("10.0.0.%d", rng.IntN(40)), second, "/")})
		}
		place := make([]int, len(lines)) // where each line is written
		for i := range place {
			place[i] = i
			if disorder > 0 {
				place[i] += rng.IntN(disorder)
			}
		}
		order := make([]int, len(lines))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return place[a] - place[b] })
		logs := make([]strings.Builder, 1+rng.IntN(4))
		for _, i := range order {
			logs[rng.IntN(len(logs))].WriteString(lines[i].text)
		}
		limit := perClient(weir.TokenBucket{Rate: weir.PerMinute(2), Burst: 1})
		var want *Report
		for _, how := range []string{"with decisions", "in a window", "in a small window", "through pipes", "compressed"} {
			o := Options{Policy: limit, TempDir: t.TempDir()}
			for i := range logs {
				var r io.Reader = strings.NewReader(logs[i].String())
				switch how {
				case "through pipes":
					r = io.MultiReader(r)
				case "compressed":
					var zipped bytes.Buffer
					z := gzip.NewWriter(&zipped)
					io.Copy(z, r)
					z.Close()
					r = bytes.NewReader(zipped.Bytes())
				}
				o.Inputs = append(o.Inputs, Input{fmt.Sprint(i), r})
			}
			switch how {
			case "with decisions":
				o.Decisions = io.Discard
			case "in a small window":
				o.window = 20
			}
			got, err := Replay(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if got.Requests != 3000 || got.Limited != want.Limited || got.Limited == 0 || !slices.Equal(got.Most, want.Most) || got.First != want.First || got.Last != want.Last {
				t.Errorf("disorder %d, %d logs, %s: %d of %d limited, %v to %v; want %d of %d, %v to %v", disorder, len(logs), how,
					got.Limited, got.Requests, shown(got.First), shown(got.Last), want.Limited, want.Requests, shown(want.First), shown(want.Last))
			}
		}
	}
}

// longLines is a log in order, of lines with a long target. It notes how much memory is in use while it is read.
type longLines struct {
	lines, target int
	line          int
	rest          []byte // of the line
	most          uint64
}

func (l *longLines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if l.line == l.lines {
			return 0, io.EOF
		}
		if l.line%50 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			l.most = max(l.most, m.HeapAlloc)
		}
		l.rest = []byte(logLine(fmt.Sprintf("10.0.0.%d", l.line%7), l.line, "/"+strings.Repeat("a", l.target)))
		l.line++
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *longLines) Seek(int64, int) (int64, error) {
	l.line, l.rest = 0, nil
	return 0, nil
}

// TestLongLinesTakeNoMemory: however long the lines are, the memory for those that may yet be put in order is
// bounded, with one log and with several.
func TestLongLinesTakeNoMemory(t *testing.T) {
	for _, logs := range []int{1, 3} {
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var inputs []*longLines
		o := Options{Policy: perClient(tenAMinute), windowBytes: 1 << 20}
		for i := range logs {
			inputs = append(inputs, &longLines{lines: 1200 / logs, target: 100_000})
			o.Inputs = append(o.Inputs, Input{Name: fmt.Sprint(i), R: inputs[i]})
		}
		r, err := Replay(t.Context(), o)
		if err != nil || r.Requests != 1200 {
			t.Fatalf("%+v %v", r, err)
		}
		for _, in := range inputs {
			if used := int64(in.most) - int64(before.HeapAlloc); used > 40<<20 {
				t.Errorf("%d logs: %d MB for a window of 1 MB, of 120 MB", logs, used>>20)
			}
		}
	}
}

// TestLongNamesTakeNoMemory: a client's name may be as long as a line; clients are told apart nevertheless.
func TestLongNamesTakeNoMemory(t *testing.T) {
	long := strings.Repeat("x", 50_000)
	r, _ := run1(t, Options{Policy: perClient(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1}), Profiles: true},
		logLine(long+"a", 0, "/")+logLine(long+"b", 0, "/")+logLine(long+"a", 1, "/")+logLine("c", 1, "/"))
	if r.Clients.Seen != 3 || r.Clients.Limited != 1 {
		t.Errorf("%+v", r.Clients)
	}
	for name := range r.clients.all {
		if len(name) > longestClient {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
	if c := r.Doing; len(c) != 1 || !strings.HasPrefix(c[0].Client, "xxxx") || len(c[0].Client) > longestClient {
		t.Errorf("%+v", c)
	}
}

// TestUnreadableLinesOfSeveralLogs: lines are counted from the start of each log, and the first come first.
func TestUnreadableLinesOfSeveralLogs(t *testing.T) {
	good := logLine("a", 0, "/")
	r, _ := run1(t, Options{Policy: perClient(tenAMinute)}, strings.Repeat(good, 2000)+"x\n"+good, "y\n"+good+"z\n", "w\n")
	want := []BadLine{{"0", 2001, "", "x", 0}, {"1", 1, "", "y", 1}, {"1", 3, "", "z", 1}}
	for i := range r.Samples {
		r.Samples[i].Why = ""
	}
	if r.Unparsed != 4 || !slices.Equal(r.Samples, want) {
		t.Errorf("%d, %+v", r.Unparsed, r.Samples)
	}
}

// TestSpareBatchesStaySmall: batches made of all pending requests, to sort them, were used for blocks afterwards, until
// each block had room for twice the window. A log of ten million lines that was a little out of order took 900 MB.
func TestSpareBatchesStaySmall(t *testing.T) {
	var log strings.Builder
	for i := range 100_000 {
		log.WriteString(logLine("10.0.0.1", i/100-i%3, "/"))
	}
	o := Options{Policy: perClient(tenAMinute)}
	o.defaults()
	l := layoutFor(o.Policy)
	f := newFeed(t.Context(), &o, &l, []Input{{"log", strings.NewReader(log.String())}}, new(memory))
	used := 0
	sorting := order{feed: f, unread: new(Reading), window: window, bytes: windowBytes, use: func(*item) error { used++; return nil }}
	err := sorting.run()
	f.close()
	if err != nil || used != 100_000 {
		t.Fatal(used, err)
	}
	f.spare.New = nil
	for {
		b, _ := f.spare.Get().(*batch)
		if b == nil {
			return
		}
		if cap(b.items) > blockSize/16 {
			t.Errorf("a spare batch has room for %d requests", cap(b.items))
		}
	}
}
