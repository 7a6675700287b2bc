package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// A kind is what a service is short of.
type kind struct {
	name, what string
	places     int  // how many requests it works at at once
	few        bool // so few that docs/adaptive.md advises a low initial limit
}

// capacity is about how many requests a second each service can do.
const capacity = 300

var kinds = []kind{
	{"CPU", "a busy loop of 3.3 ms, on one core", 1, true},
	{"disk", "a write and an fsync, 8 at a time, 27 ms or as long as the disk takes", 8, false},
	{"memory", "40 ms, 12 at a time; each request holds 64 KiB, also while it waits; memory limit 128 MiB", 12, false},
	{"pool", "16 connections of a database pool; 53 ms on average, of a log-normal distribution", 16, false},
}

const (
	heldBytes   = 64 << 10
	memoryLimit = 128 << 20
	mostWaiting = 8192 // a service that would take more would take the memory of the machine
)

// serve runs the service of a kind until the process ends. Its requests go on when their clients have
// gone, as those of most services do: no query ends because somebody has closed a page.
func serve(name string) error {
	work, err := service(name)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "listening on %s\n", l.Addr())
	var waiting atomic.Int64
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { //nolint:gosec // it has no timeouts, as it stands for a service that has none
		defer waiting.Add(-1)
		if waiting.Add(1) > mostWaiting {
			http.Error(w, "too many requests wait", http.StatusServiceUnavailable)
			return
		}
		if err := work(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "done")
	}))
}

// service returns what a request of a kind does.
func service(name string) (func() error, error) {
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		places := make(chan struct{}, k.places)
		inPlace := func(f func() error) error {
			places <- struct{}{}
			defer func() { <-places }()
			return f()
		}
		each := time.Second * time.Duration(k.places) / capacity
		switch name {
		case "CPU":
			runtime.GOMAXPROCS(1)
			n := calibrate(each)
			return func() error { burn(n); return nil }, nil
		case "disk":
			return disk(each, k.places, inPlace)
		case "memory":
			debug.SetMemoryLimit(memoryLimit)
			return func() error {
				held := make([]byte, heldBytes)
				for i := range held {
					held[i] = byte(i)
				}
				err := inPlace(func() error { <-time.After(each); return nil })
				runtime.KeepAlive(held)
				return err
			}, nil
		default:
			const sigma = 0.3
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(1, 2))
			normal := func() float64 {
				mu.Lock()
				defer mu.Unlock()
				return rnd.NormFloat64()
			}
			return func() error {
				return inPlace(func() error {
					<-time.After(time.Duration(float64(each) * math.Exp(sigma*normal()-sigma*sigma/2)))
					return nil
				})
			}, nil
		}
	}
	return nil, fmt.Errorf("%q is no service: write the name of a row of the table", name)
}

// disk writes to as many files as there are places, over and over, and waits until that is on the disk.
func disk(each time.Duration, n int, inPlace func(func() error) error) (func() error, error) {
	files := make(chan *os.File, n)
	for range n {
		f, err := os.CreateTemp(os.Getenv(dirVariable), "disk")
		if err != nil {
			return nil, err
		}
		files <- f
	}
	return func() error {
		return inPlace(func() error {
			rest := time.After(each)
			f := <-files
			defer func() { files <- f }()
			if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
				return err
			}
			err := f.Sync()
			<-rest
			return err
		})
	}, nil
}

var sink atomic.Uint64

func burn(n int) {
	x := uint64(n)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

// calibrate returns for how many rounds burn takes that long: by the fastest of several runs, as others
// may use the machine.
func calibrate(each time.Duration) int {
	const rounds = 1_000_000
	fastest := time.Hour
	for range 50 {
		begin := time.Now()
		burn(rounds)
		fastest = min(fastest, time.Since(begin))
	}
	return int(rounds * float64(each) / float64(fastest))
}
