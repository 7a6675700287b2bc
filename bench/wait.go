package main

// Lengths of the queues.
const (
	longLine  = 100_000
	shortLine = 1_000
)

// wait measures waiting in a long queue: the memory, how late waiters wake, and what it costs to
// leave.
func wait(r *report) error {
	jobs := []job{
		{Kind: "wake", Subject: subjectBare, N: longLine},
		{Kind: "wake", Subject: subjectWeir, N: longLine, Burst: 1, Ahead: headStart},
		{Kind: "wake", Subject: subjectWeir, N: longLine, Burst: 100, Ahead: headStart},
		{Kind: "wake", Subject: subjectPeer, N: longLine, Burst: 1, Ahead: headStart},
		{Kind: "wake", Subject: subjectPeer, N: longLine, Burst: 100, Ahead: headStart},
	}
	found, err := apart(jobs, r.repeats())
	if err != nil {
		return err
	}
	names := []string{"a goroutine blocked on a channel", "weir, burst 1", "weir, burst 100", "x/time, burst 1", "x/time, burst 100"}
	r.add(waiterMemory(names, found))
	r.add(wakeTimes(names[1:], found[1:]))
	return leaveTimes(r)
}

// waiterMemory separates the memory of a limiter from that of a goroutine alone, which is the first
// line.
func waiterMemory(names []string, found []values) table {
	t := table{
		Title: "memory of one of 100,000 goroutines in Wait, bytes",
		Notes: []string{
			"heap and stack: HeapAlloc and StackInuse of MemStats, after a collection; sys: Sys, all memory from the operating system",
			"added: beyond what the goroutine takes by itself; nothing is printed where some did not wait until all did",
		},
		Columns: []column{{"heap", 0}, {"stack", 0}, {"heap+stack", 0}, {"added", 0}, {"sys", 0}, {"sys added", 0}},
	}
	bare := found[0].get("heap") + found[0].get("stack")
	for i, v := range found {
		r := v.row(names[i], "heap", "stack", "", "", "sys", "")
		sum := v.get("heap") + v.get("stack")
		r.Values[2] = sum
		if i > 0 {
			r.Values[3], r.Values[5] = sum-bare, v.get("sys")-found[0].get("sys")
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// wakeTimes makes the table of how late waiters wake.
func wakeTimes(names []string, found []values) table {
	t := table{
		Title: "waking 100,000 goroutines at 100,000/s: how long after its turn the i-th of them returned from Wait, us",
		Notes: []string{
			"all wait before the first turn comes; token i is due at start + (i+1-burst)/rate, counted from the first one charged, at start",
			"early: how many returned before their turn; all: from one token before the first turn until the last has returned",
		},
		Columns: []column{
			{"early", 0}, {"least", 0}, {"p50", 0}, {"p90", 0}, {"p99", 0}, {"max", 0}, {"all, s", 4}, {"ideal, s", 4},
		},
	}
	for i, v := range found {
		t.Rows = append(t.Rows, v.row(names[i], "early", "least", "p50", "p90", "p99", "max", "took", "ideal"))
	}
	return t
}

// leaveTimes measures leaving queues of both lengths.
func leaveTimes(r *report) error {
	subjects := []string{subjectBare, subjectWeir, subjectPeer}
	var jobs []job
	for _, s := range subjects {
		jobs = append(jobs, job{Kind: "leave", Subject: s, N: shortLine, Burst: 1}, job{Kind: "leave", Subject: s, N: longLine, Burst: 1})
	}
	found, err := apart(jobs, r.repeats())
	if err != nil {
		return err
	}
	t := table{
		Title: "leaving the line: from the cancellation of one waiter, at random, until its Wait has returned, us",
		Notes: []string{"1,000 leave, one after another; 500 where 1,000 wait; a goroutine is one that waits for nothing but its context"},
		Columns: []column{
			{"p50 of 1,000", 2}, {"p50 of 100,000", 2}, {"100,000 / 1,000", 2}, {"p99 of 1,000", 2}, {"p99 of 100,000", 2},
		},
	}
	for i, name := range subjects {
		short, long := found[2*i], found[2*i+1]
		t.Rows = append(t.Rows, row{Name: name, Values: []float64{
			short["p50"], long["p50"], long["p50"] / short["p50"], short["p99"], long["p99"],
		}})
	}
	r.add(t)
	return nil
}
