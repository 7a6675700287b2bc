package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// jobWord is the argument that makes the program do one job and print what it found.
const jobWord = "job"

// A job is a measurement that needs a process of its own: memory is measured from outside the heap, and a process that held 100,000
// goroutines before is not like one that did not.
type job struct {
	Kind    string // which of jobKinds
	Subject string
	N       int // how many goroutines, keys, or lines
	Ceiling int // of flood: how many keys are kept
	Burst   int
	Ahead   time.Duration // of wake: how long before the first turn a crowd begins to gather
	File    string        // of replay: the log
	Procs   int           // GOMAXPROCS; 0 is what this process has
}

// jobKinds are the jobs there are, by Kind.
func jobKinds() map[string]func(job) (values, error) {
	return map[string]func(job) (values, error){
		"wake":   wake,
		"leave":  leave,
		"keys":   keysMemory,
		"pauses": pauses,
		"growth": growth,
		"flood":  flood,
		"replay": replayed,
	}
}

// do does the job in this process.
func (j job) do() (values, error) {
	f := jobKinds()[j.Kind]
	if f == nil {
		return nil, fmt.Errorf("there is no job %q", j.Kind)
	}
	return f(j)
}

// apart does the job in a process of its own; again, with more time to gather, where that was too short.
func (j job) apart() (values, error) {
	const longest = time.Minute
	for ; ; j.Ahead *= 2 {
		v, err := j.once()
		if err != nil || v["late"] == 0 {
			return v, err
		}
		if j.Ahead > longest {
			return nil, fmt.Errorf("%+v: the first turn came before all were waiting: this machine is too busy", j)
		}
	}
}

// once does the job in a process of its own.
func (j job) once() (values, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, jobWord, string(text))
	cmd.Stderr = os.Stderr
	if j.Procs > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", j.Procs))
	}
	answer, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%+v: %w", j, err)
	}
	var v values
	return v, json.Unmarshal(answer, &v)
}

// serveJob is the program in the other process. It returns its exit code.
func serveJob(text string, stdout, stderr io.Writer) int {
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		var v values
		if v, err = j.do(); err == nil {
			err = json.NewEncoder(stdout).Encode(v)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// apart does several jobs in turn, as often as repeats says, and returns the medians of what each found.
func apart(jobs []job, repeats int) ([]values, error) {
	runs := make([][]values, len(jobs))
	for range repeats {
		for i, j := range jobs {
			v, err := j.apart()
			if err != nil {
				return nil, err
			}
			runs[i] = append(runs[i], v)
		}
	}
	all := make([]values, len(jobs))
	for i := range jobs {
		all[i] = medians(runs[i])
	}
	return all, nil
}
