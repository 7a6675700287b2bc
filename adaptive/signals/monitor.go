package signals

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the settings of a Monitor.
type Options struct {
	Root      string        // the folder that has proc and sys; default: /
	Interval  time.Duration // between two readings; default: 250 ms
	Smoothing time.Duration // the time constant of the average, which weighs newer levels more; default: 1 s

	// Sample replaces the reading of Linux: it sets levels, unsmoothed, some time after the start of
	// the Monitor. It is never called concurrently. The signals of the Go runtime are read besides.
	Sample func(at time.Duration, r *Reading)
}

// A Monitor reads the signals again and again, in one goroutine. Close ends it.
//
// Levels are smoothed: each is an exponentially weighted average. A level that jumps from 0 to 1 is
// 0.63 after a second and 0.8 after 1.6 s. A reading that comes late has the weight of the time
// that it stands for. Memory and Descriptors are amounts, and not smoothed: a leak is seen at once.
type Monitor struct {
	reading   atomic.Pointer[Reading]
	start     time.Time
	smoothing float64 // in seconds
	samplers  []sampler
	raw       Reading
	since     [signalCount]time.Duration // when the level of a signal was last read
	ticks     int

	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// A sampler sets the levels of some signals, or says why they are absent.
type sampler struct {
	signals []Signal
	every   int // in how many intervals it is called once
	sample  func(at time.Duration, r *Reading)
}

var _ Source = (*Monitor)(nil)

// Open begins to read. The caller must call Close. Signals that need two readings, such as CPU, are
// absent for the first Interval.
func Open(o Options) (*Monitor, error) {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Interval == 0 {
		o.Interval = 250 * time.Millisecond
	}
	if o.Smoothing == 0 {
		o.Smoothing = time.Second
	}
	if o.Interval < 10*time.Millisecond || o.Interval > time.Minute {
		return nil, fmt.Errorf("signals: Interval: %v is not within 10ms and 1m", o.Interval)
	}
	if o.Smoothing < 0 || o.Smoothing > time.Hour {
		return nil, fmt.Errorf("signals: Smoothing: %v is not a duration above 0, of at most 1h", o.Smoothing)
	}
	m := &Monitor{start: time.Now(), smoothing: o.Smoothing.Seconds(), stop: make(chan struct{}), done: make(chan struct{})}
	if o.Sample != nil {
		m.samplers = []sampler{{All()[:SchedulerLatency], 1, o.Sample}}
	} else {
		linux, err := newLinux(o.Root)
		if err != nil {
			return nil, fmt.Errorf("signals: %w: it reads Linux; elsewhere, use module weirgopsutil", err)
		}
		m.samplers = linux.samplers(max(1, int(time.Second/o.Interval)))
	}
	m.samplers = append(m.samplers, newProgram().sampler())
	m.tick()
	go m.run(o.Interval)
	return m, nil
}

// Reading returns the latest reading. It takes no lock. After Close all signals are absent.
func (m *Monitor) Reading() *Reading { return m.reading.Load() }

// Close ends the reading. It may be called several times, and always returns nil.
func (m *Monitor) Close() error {
	m.once.Do(func() {
		close(m.stop)
		<-m.done
		closed := &Reading{}
		for _, s := range All() {
			closed.SetAbsent(s, "the monitor is closed")
		}
		m.reading.Store(closed)
	})
	return nil
}

func (m *Monitor) run(interval time.Duration) {
	defer close(m.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-ticker.C:
			m.tick()
		}
	}
}

// tick publishes a new reading.
func (m *Monitor) tick() {
	at := time.Since(m.start)
	next := &Reading{}
	if last := m.reading.Load(); last != nil {
		*next = *last
	}
	for _, s := range m.samplers {
		if m.ticks%s.every != 0 {
			continue
		}
		m.raw = Reading{}
		s.sample(at, &m.raw)
		for _, signal := range s.signals {
			m.smooth(next, signal, at)
		}
	}
	m.ticks++
	m.reading.Store(next)
}

// smooth moves the level of a signal towards what was just read.
func (m *Monitor) smooth(next *Reading, s Signal, at time.Duration) {
	now, was := m.raw.values[s], next.values[s]
	if math.IsNaN(now.level) || math.IsInf(now.level, 0) {
		now = value{text: now.text + ": not a number"}
	}
	if now.known && was.known && s != Memory && s != Descriptors {
		now.level = was.level + (now.level-was.level)*(1-math.Exp(-(at-m.since[s]).Seconds()/m.smoothing))
	}
	m.since[s] = at
	next.values[s] = now
}
