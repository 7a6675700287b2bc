package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// jobWord is the argument that makes the program do one job and print its figures.
const jobWord = "job"

// A job is a measurement that needs a process of its own: memory is measured from outside the heap,
// and a process that once held 100,000 goroutines behaves differently.
type job struct {
	Kind    string // which of jobKinds
	Subject string
	N       int // how many goroutines, keys, or lines
	Ceiling int // for flood: how many keys are kept
	Burst   int
	Per     time.Duration // for wake: the time from one token to the next; default: wakePer
	Ahead   time.Duration // for wake: how long before the first turn the goroutines start to gather
	File    string        // for replay: the log
	Procs   int           // GOMAXPROCS; default: that of this process
}

// jobKinds are the kinds of jobs.
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

// apart runs the job in a process of its own. If the time to gather was too short, it repeats the
// job with more.
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

// serveJob is the program in the other process. It returns the exit code.
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

// apart runs several jobs in turn, repeats times, and returns the medians of the figures of each.
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
