package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKeyed runs the section with few keys: all subjects make the decisions that they should, in
// every setting.
func TestKeyed(t *testing.T) {
	var out strings.Builder
	r := &report{rounds: 2, round: 200 * time.Microsecond, keys: fewestKeys, out: &out}
	if err := keyed(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"keys at random, alone\n", "keys by zipf 1.0, alone\n", "keys in a flood, alone\n", fmt.Sprintf("<= %g the fastest peer", keyedTarget)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	for _, table := range r.tables {
		if n := len(table.Rows); n != 3+len(peerTables) {
			t.Errorf("%s: %d rows", table.Title, n)
		}
	}
}

// TestFastestPeer: the target is compared with the fastest rival alone.
func TestFastestPeer(t *testing.T) {
	c := contest{
		rivals:   map[string][]string{"a": {"b", "c", "d"}},
		beat:     0.4,
		subjects: []subject{{"a", spin(true), either, []target{{"", 0}}}, {"b", spin(true), either, nil}, {"c", spin(true), either, nil}, {"d", spin(true), either, nil}},
	}
	for a, want := range map[float64]string{2: "<= 0 allocs ok, <= 0.4 the fastest peer ok", 3: "<= 0 allocs ok, <= 0.4 the fastest peer MISSED"} {
		outcomes := []outcome{{perOp: []float64{a}, ops: 1}, {perOp: []float64{9}, ops: 1}, {perOp: []float64{5}, ops: 1}, {perOp: []float64{7}, ops: 1}}
		if err := c.compare(outcomes); err != nil {
			t.Fatal(err)
		}
		rows := c.table(outcomes).Rows
		if rows[0].Target != want || rows[0].Values[3] != a/5 || rows[1].Target != "" {
			t.Errorf("%+v", rows)
		}
	}
	if n := len(c.subjects[0].targets); n != 1 {
		t.Errorf("the subject has %d targets of its own now", n)
	}
}

func TestHotKey(t *testing.T) {
	const keys = 50
	var w keyWriter
	texts := map[string]bool{}
	for i := range keys {
		texts[string(w.key(i))] = true
	}
	if text := string(w.key(0xab)); len(texts) != keys || text != "user-000000ab" {
		t.Fatalf("%d texts, %s", len(texts), text)
	}
	k := (&keySource{keys: keys}).start(100 * keys)
	seen := map[string]int{}
	for range 100 * keys {
		text := string(k.next())
		if !texts[text] || k.unseen {
			t.Fatalf("%q is not one of the keys", text)
		}
		seen[text]++
	}
	for text := range texts {
		if n := seen[text]; n < 40 || n > 200 {
			t.Errorf("%s was taken %d times of about 100", text, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { k.next(); _ = k.string() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestZipf: the k-th key is drawn 1/k as often as the first.
func TestZipf(t *testing.T) {
	s := newZipf(1000)
	k := s.start(0)
	seen := map[string]int{}
	for range zipfDraws {
		seen[string(k.next())]++
	}
	var w keyWriter
	first := float64(seen[string(w.key(0))])
	if share := first / zipfDraws; math.Abs(share*7.485-1) > 0.02 { // the sum of 1/k over 1000 keys
		t.Errorf("the first key is drawn %v of the time", share)
	}
	for _, i := range []int{1, 9, 99} {
		if got := float64(seen[string(w.key(i))]) * float64(i+1); math.Abs(got/first-1) > 0.1 {
			t.Errorf("key %d is drawn %v times as often as it should be", i, got/first)
		}
	}
}

// TestFloodKeys: 9 of 10 keys are new to all goroutines, and a table that keeps keys gets copies.
func TestFloodKeys(t *testing.T) {
	const keys, n = 100, 10_000
	s := &keySource{keys: keys, flood: true}
	seen, fresh := map[string]bool{}, 0
	var w keyWriter
	for i := range keys {
		seen[string(w.key(i))] = true
	}
	for range 2 { // goroutines
		k := s.start(n)
		for range n {
			text := k.string()
			if seen[text] == k.unseen {
				t.Fatalf("%q was seen before: %v", text, seen[text])
			}
			if k.unseen {
				fresh++
				seen[text] = true
			}
		}
	}
	if share := float64(fresh) / (2 * n); math.Abs(share-0.9) > 0.02 || len(seen) != keys+fresh {
		t.Errorf("%v were new, %d of %d are still what they were", share, len(seen), keys+fresh)
	}
}

// TestKeysAreKept: no table keeps the buffer itself, and every table keeps all keys.
func TestKeysAreKept(t *testing.T) {
	const keys = 20
	for _, name := range append([]string{weirTable}, peerTables...) {
		table, err := newKeyTable(name, ceiling(keys))
		if err != nil {
			t.Fatal(err)
		}
		fillTable(table, keys)
		if yes := table.loop(&keySource{keys: keys})(1000); yes != 1000 {
			t.Errorf("%s: %d of 1000 admitted", name, yes)
		}
		var w keyWriter
		texts := map[string]bool{}
		for i := range keys {
			texts[string(w.key(i))] = true
		}
		n := keys
		switch k := table.(type) {
		case weirKeys:
			n = k.l.Len()
		case *syncMapKeys:
			n = 0
			k.limiters.Range(func(key, _ any) bool { n++; return texts[key.(string)] })
		case *mutexMapKeys:
			n = len(k.limiters)
			for key := range texts {
				if k.limiters[key] == nil {
					t.Errorf("%s: %q is not in it", name, key)
				}
			}
		case *lruKeys:
			n = k.buckets.Len()
			for _, key := range k.buckets.Keys() {
				if !texts[key] {
					t.Errorf("%s: %q is no key", name, key)
				}
			}
		case otterKeys:
			n = k.c.EstimatedSize()
		}
		if n != keys {
			t.Errorf("%s: %d keys, want %d", name, n, keys)
		}
		table.close()
	}
	if _, err := newKeyTable("drawer", 1); err == nil {
		t.Error("there is a drawer")
	}
}

// onLinux skips a test that needs /proc.
func onLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process, and the CPU time of a thread, are read as Linux has them")
	}
}

func TestKeysMemory(t *testing.T) {
	onLinux(t)
	for _, name := range []string{weirTable, syncMapTable} {
		v, err := job{Kind: "keys", Subject: name, N: 50_000}.apart()
		if err != nil || v["bytes"] <= 10 || v["bytes"] > 1000*heavy || v["peak"] <= 10 {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

func TestKeyMemoryTable(t *testing.T) {
	jobs := []job{{Subject: weirTable, N: 100}, {Subject: weirTable, N: 10}, {Subject: lruTable, N: 10}}
	rows := keyMemoryTable(jobs, []values{{"bytes": 24, "peak": 40}, {"bytes": 50, "peak": 60}, {"bytes": 150, "peak": 200}}).Rows
	if got := rows[0]; got.Target != "<= 24 bytes ok" || got.Missed || !slices.Equal(got.Values, []float64{100, 24, 40, 1}) {
		t.Errorf("%+v", got)
	}
	if got := rows[2]; got.Target != "" || !slices.Equal(got.Values, []float64{10, 150, 200, 3}) {
		t.Errorf("%+v", got)
	}
}

func TestPauses(t *testing.T) {
	jobs := []job{{Kind: "pauses", Subject: subjectEmpty}, {Kind: "pauses", Subject: weirTable, N: 1000}}
	found, err := apart(jobs, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		if v["p50"] <= 0 || v["max"] < v["p90"] || v["p90"] < v["p50"] || v["cpu"] <= 0 || v["took"] <= 0 {
			t.Errorf("%v", v)
		}
	}
	rows := keyGCTable(jobs, found).Rows
	if rows[0].Target != "" || !strings.HasPrefix(rows[1].Target, "<= 1.25 an empty process's pause ") || rows[0].Values[4] != 1 {
		t.Errorf("%+v", rows)
	}
}

func TestGrowth(t *testing.T) {
	onLinux(t)
	v, err := job{Kind: "growth", N: 20_000}.do()
	if err != nil {
		t.Fatal(err)
	}
	rows := growthTable(20_000, v).Rows
	for _, r := range rows {
		if r.Values[0] < 20_000 || r.Values[1] <= 0 || r.Values[2] > r.Values[3] || r.Values[5] > r.Values[6] || r.Values[6] <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if !strings.HasPrefix(rows[0].Target, "<= 1000 us of CPU in a call ") || rows[1].Target != "" {
		t.Errorf("%+v", rows)
	}
}

func TestTimes(t *testing.T) {
	var c times
	for range 99 {
		c.add(100)
	}
	c.add(time.Hour)
	if c.rank(0.5) != 112 || c.rank(0.99) != 112 || c.rank(0.999) != time.Hour || c.max != time.Hour || c.over != 1 {
		t.Errorf("%v, %v, %v, %d", c.rank(0.5), c.rank(0.999), c.max, c.over)
	}
	c.add(longestStall)
	c.add(-1) // a CPU clock after a move to another CPU
	if c.over != 1 || c.n != 102 || c.counts[0] != 1 {
		t.Errorf("%d of %d", c.over, c.n)
	}
}

// TestFlood: however many new keys come, limited keys stay limited.
func TestFlood(t *testing.T) {
	onLinux(t)
	j := job{Kind: "flood", N: 120_000, Ceiling: 5000}
	v, err := j.do()
	if err != nil {
		t.Fatal(err)
	}
	if v["beyond"] != 0 || v["more"] != 0 || v["less"] != 0 || v["calls"] < 20*wells || v["admitted"] < wells*floodBurst {
		t.Errorf("%v", v)
	}
	if v[tenth("keys", 10)] > 5000 || v[tenth("evicted full", 10)]+v[tenth("evicted idle", 10)] < 114_000 || v[tenth("refused", 10)] != 0 {
		t.Errorf("%v", v)
	}
	tables := floodTables(j, v)
	if len(tables[0].Rows) != tenths || !strings.Contains(tables[1].Rows[0].Target, "admitted beyond ok") {
		t.Errorf("%+v", tables)
	}
	for _, table := range tables {
		table.print(io.Discard)
	}
}

// TestBeyond: admissions beyond the bound are counted.
func TestBeyond(t *testing.T) {
	for _, c := range []struct {
		took     time.Duration
		admitted int64
		want     int64
	}{{0, 10, 0}, {0, 11, 1}, {time.Second - 1, 11, 1}, {time.Second, 11, 0}, {5 * time.Second, 20, 5}, {5 * time.Second, 3, 0}} {
		w := well{admitted: c.admitted, first: 7, last: 7 + int64(c.took)}
		if got := w.beyond(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestKeysUsage(t *testing.T) {
	for _, bad := range []string{"0", "999", "10000001"} {
		var stderr strings.Builder
		if err := run([]string{"-keys", bad, "take"}, io.Discard, &stderr); err == nil || !strings.Contains(stderr.String(), "-keys "+bad) {
			t.Errorf("-keys %s: %v, %s", bad, err, stderr.String())
		}
	}
}
