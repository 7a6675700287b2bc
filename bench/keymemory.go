package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// keyBytes is how much process memory a live key may take.
const keyBytes = 24

// keyMemory measures the memory of a key as the operating system counts it, with 10 times as many
// keys in Weir's table as in those of the peers.
func keyMemory(r *report) error {
	jobs := []job{{Kind: "keys", Subject: weirTable, N: 10 * r.keys}, {Kind: "keys", Subject: weirTable, N: r.keys}}
	for _, name := range peerTables {
		jobs = append(jobs, job{Kind: "keys", Subject: name, N: r.keys})
	}
	found, err := apart(jobs, r.repeats())
	if err != nil {
		return err
	}
	r.add(keyMemoryTable(jobs, found))
	return nil
}

// keyMemoryTable lays out the figures of each job. The first two are Weir's.
func keyMemoryTable(jobs []job, found []values) table {
	t := table{
		Title: "process memory of a live key, bytes",
		Notes: []string{
			"bytes: what VmRSS has grown by since the table was empty, in a process of its own, when free memory has been given back",
			"peak: what the highest VmRSS was above that, VmHWM, until all keys were there; nobody gave memory back meanwhile",
			fmt.Sprintf("the text of the key, %d bytes, is part of it where the table keeps it; / weir: beside Weir's with as many keys", keyLen),
		},
		Columns: []column{{"keys", 0}, {"bytes", 1}, {"peak", 1}, {"/ weir", 2}},
	}
	for i, j := range jobs {
		v := found[i]
		v["keys"], v["ratio"] = float64(j.N), v.get("bytes")/found[min(i, 1)].get("bytes")
		line := v.row(j.Subject, "keys", "bytes", "peak", "ratio")
		if i == 0 {
			line.Target, line.Missed = atMost(v.get("bytes"), keyBytes, "bytes")
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// keysMemory fills a table with N keys and computes the memory of one.
func keysMemory(j job) (values, error) {
	small, err := newKeyTable(j.Subject, ceiling(j.N))
	if err != nil {
		return nil, err
	}
	defer small.close()
	// what only the first keys cost, like the pages of the code, is not a key's
	fillTable(small, 1000)
	t, err := newKeyTable(j.Subject, ceiling(j.N))
	if err != nil {
		return nil, err
	}
	defer t.close()
	before, err := resident()
	if err != nil {
		return nil, err
	}
	fillTable(t, j.N)
	peak, err := status("VmHWM")
	if err != nil {
		return nil, err
	}
	after, err := resident()
	runtime.KeepAlive(t)
	runtime.KeepAlive(small)
	return values{"bytes": (after - before) / float64(j.N), "peak": (peak - before) / float64(j.N)}, err
}

// resident returns the resident memory of this process, in bytes, after free memory was returned.
func resident() (float64, error) {
	debug.FreeOSMemory()
	return status("VmRSS")
}

// status is what the operating system says of this process's memory, in bytes.
func status(name string) (float64, error) { return statusOf("self", name) }

// statusOf is status for a process.
func statusOf(pid, name string) (float64, error) {
	text := field("/proc/"+pid+"/status", name)
	kb, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("the memory of a process is read from /proc, which only Linux has: %s is %q", name, text)
	}
	return kb * 1024, nil
}
