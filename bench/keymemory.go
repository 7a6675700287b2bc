package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// keyMemory measures what a key takes by the operating system's account.
func keyMemory(r *report) error {
	names := []string{weirTable, syncMapTable, mutexMapTable}
	var jobs []job
	for _, name := range names {
		jobs = append(jobs, job{Kind: "keys", Subject: name, N: liveKeys})
	}
	found, err := apart(jobs, r.repeats())
	if err != nil {
		return err
	}
	t := table{
		Title: fmt.Sprintf("process memory of one of %d live keys, bytes", liveKeys),
		Notes: []string{
			"what VmRSS has grown by, in a process of its own, when free memory has been given back",
			fmt.Sprintf("the text of the key, %d bytes, is part of it", keyLen),
		},
		Columns: []column{{"bytes", 1}, {"/ weir", 2}},
	}
	for i, name := range names {
		t.Rows = append(t.Rows, row{Name: name, Values: []float64{found[i]["bytes"], found[i]["bytes"] / found[0]["bytes"]}})
	}
	r.add(t)
	return nil
}

// keysMemory fills a table with N keys and finds the memory of one.
func keysMemory(j job) (values, error) {
	small, err := newKeyTable(j.Subject)
	if err != nil {
		return nil, err
	}
	for i := range 1000 {
		small.enter(keyText(i)) // what only the first keys cost, like the pages of the code, is not a key's
	}
	t, err := newKeyTable(j.Subject)
	if err != nil {
		return nil, err
	}
	before, err := resident()
	if err != nil {
		return nil, err
	}
	for i := range j.N {
		t.enter(keyText(i))
	}
	after, err := resident()
	runtime.KeepAlive(t)
	runtime.KeepAlive(small)
	return values{"bytes": (after - before) / float64(j.N)}, err
}

// resident is the memory of this process that is in use, in bytes, when free memory has been given back.
func resident() (float64, error) {
	debug.FreeOSMemory()
	text := field("/proc/self/status", "VmRSS")
	kb, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("the memory of a process is read from /proc, which only Linux has: VmRSS is %q", text)
	}
	return kb * 1024, nil
}
