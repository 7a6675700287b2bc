package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// unchanged is the largest ratio to an empty process that still counts as no change: two empty
	// processes differ by about as much.
	unchanged = 1.25

	// gcCycles is how many collections are measured. The runtime keeps the pauses of 256.
	gcCycles = 200

	subjectEmpty = "an empty process"
	subjectAgain = "an empty process, again"
)

// keyGC measures what live keys cost the garbage collector: how long it stops all goroutines, and
// its CPU time.
func keyGC(r *report) error {
	jobs := []job{{Kind: "pauses", Subject: subjectEmpty}, {Kind: "pauses", Subject: subjectAgain}, {Kind: "pauses", Subject: weirTable, N: 10 * r.keys}}
	for _, name := range []string{syncMapTable, sethvargoTable} {
		jobs = append(jobs, job{Kind: "pauses", Subject: name, N: r.keys})
	}
	found, err := apart(jobs, r.repeats())
	if err != nil {
		return err
	}
	r.add(keyGCTable(jobs, found))
	return nil
}

// keyGCTable lays out the figures of each job. The first one is an empty process.
func keyGCTable(jobs []job, found []values) table {
	t := table{
		Title: fmt.Sprintf("%d collections while so many keys are live", gcCycles),
		Notes: []string{
			"pause: how long all goroutines stood still in one collection, us; CPU: of the collector in one, all threads together, us",
			"took: how long one collection lasted, most of which goes on beside the program, us",
			fmt.Sprintf("/ empty: the median pause, and the CPU, beside those of the empty process; up to %v passes for unchanged", unchanged),
		},
		Columns: []column{{"keys", 0}, {"pause p50", 1}, {"p90", 1}, {"max", 1}, {"pause / empty", 2}, {"CPU", 0}, {"CPU / empty", 2}, {"took p50", 0}},
	}
	for i, j := range jobs {
		v := found[i]
		v["keys"], v["ratio"], v["more"] = float64(j.N), v.get("p50")/found[0].get("p50"), v.get("cpu")/found[0].get("cpu")
		line := v.row(j.Subject, "keys", "p50", "p90", "max", "ratio", "cpu", "more", "took")
		if j.Subject == weirTable {
			pause, long := atMost(v["ratio"], unchanged, "an empty process's pause")
			cpu, much := atMost(v["more"], unchanged, "its CPU")
			line.Target, line.Missed = pause+", "+cpu, long || much
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// pauses repeatedly collects the garbage of a process with N live keys.
func pauses(j job) (values, error) {
	if j.N > 0 {
		t, err := newKeyTable(j.Subject, ceiling(j.N))
		if err != nil {
			return nil, err
		}
		defer t.close()
		fillTable(t, j.N)
		defer runtime.KeepAlive(t)
	}
	runtime.GC()
	spent := gcCPU()
	var took []float64
	for range gcCycles {
		litter()
		begin := time.Now()
		runtime.GC()
		took = append(took, micros(time.Since(begin)))
	}
	spent = gcCPU() - spent
	var s debug.GCStats
	debug.ReadGCStats(&s)
	var stops []float64
	for _, d := range s.Pause[:gcCycles] { // the latest come first
		stops = append(stops, micros(d))
	}
	return values{
		"p50": median(stops), "p90": percentile(stops, 0.9), "max": percentile(stops, 1),
		"cpu": spent * 1e6 / gcCycles, "took": median(took),
	}, nil
}

// garbage keeps the litter alive until the next call.
var garbage [1000]*[1024]byte

// litter allocates a megabyte for the next collection.
func litter() {
	for i := range garbage {
		garbage[i] = new([1024]byte)
	}
}

// gcCPU returns the collector's CPU time so far, in seconds, as the runtime computes it at the end
// of each collection.
func gcCPU() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}
