// Package overload simulates a service under load in virtual time: workers with a queue, service
// times with a heavy tail, a capacity that changes, pauses, clients that give up and try again. It
// shows what a limiter before the service does, for tests and for the plots of the documentation.
package overload

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
)

// A Service is what the requests reach, at one time.
type Service struct {
	Workers  int     // how many requests are served at once; the others queue
	Slowness float64 // the factor of all service times; default: 1
	Queue    int     // how many may queue, and others are dropped at once; 0: any number
	Rate     float64 // requests per second that clients send
	Paused   bool    // nothing begins and nothing ends
}

// A Scenario is a load and a service that change over time.
type Scenario struct {
	Name    string
	For     time.Duration
	At      func(time.Duration) Service    // what holds from a time on; read every Step
	Step    time.Duration                  // default: 10 ms
	Work    func(*rand.Rand) time.Duration // the time that a request takes of a worker
	Abandon time.Duration                  // clients give up after this long; default: never
	Retries int                            // how often a client tries again after a failure
	Pause   time.Duration                  // before it tries again, on average
	Budget  Budget                         // of retries; default: none, so all are made
	Seed    uint64
}

// A Budget bounds the retries of all clients together.
type Budget interface {
	Request()    // counts a request that is no retry
	Retry() bool // reports whether a retry may be made
}

// A Limiter decides about requests. Enter returns what must be called at the end, or false for a
// request that it refuses.
type Limiter struct {
	Enter func() (done func(weir.Outcome), ok bool)
	Limit func() int64
}

// A Bin is what happened within a tenth of a second.
type Bin struct {
	Offered, Good, Refused, Dropped int   // Good: served before the client gave up
	Limit                           int64 // at its end
	InFlight                        int   // at its end
	Latencies                       []time.Duration
}

// BinWidth is the time of a Bin.
const BinWidth = 100 * time.Millisecond

// A request is on its way through the service.
type request struct {
	node        heap.Node[request]
	began, ends int64
	tries       int
	work        int64
	done        func(weir.Outcome)
	gone        bool // its client has given up
}

// A Simulation runs a scenario.
type Simulation struct {
	Scenario
	limiter  Limiter
	now      int64
	rnd      *rand.Rand
	service  Service
	events   heap.Heap[event]
	running  heap.Heap[request]
	queue    []*request
	head     int
	inFlight int
	paused   int64 // since when
	Bins     []Bin
}

type event struct {
	node heap.Node[event]
	do   func()
}

// New returns a simulation. Its Now is the clock for the limiter, which Run gets.
func New(s Scenario) *Simulation {
	if s.Step == 0 {
		s.Step = 10 * time.Millisecond
	}
	return &Simulation{Scenario: s, rnd: rand.New(rand.NewPCG(s.Seed+1, 7)), paused: -1}
}

// Now returns the virtual time.
func (s *Simulation) Now() int64 { return s.now }

func (s *Simulation) after(d int64, do func()) {
	e := &event{do: do}
	s.events.Push(&e.node, e, s.now+max(d, 0))
}

// Run runs the scenario and returns its bins.
func (s *Simulation) Run(l Limiter) []Bin {
	s.limiter = l
	s.Bins = make([]Bin, int(s.For/BinWidth))
	s.change()
	s.arrive()
	for {
		e, at := s.events.First()
		r, ends := s.running.First()
		if e == nil {
			at = math.MaxInt64
		}
		if r == nil || s.service.Paused {
			ends = math.MaxInt64
		}
		if min(at, ends) >= int64(s.For) {
			return s.Bins
		}
		if ends <= at {
			s.now = ends
			s.running.Remove(&r.node)
			s.finish(r)
			s.fill()
			continue
		}
		s.now = at
		s.events.Remove(&e.node)
		e.do()
	}
}

func (s *Simulation) bin() *Bin { return &s.Bins[min(int(s.now/int64(BinWidth)), len(s.Bins)-1)] }

// change reads what the service is like now.
func (s *Simulation) change() {
	was := s.service.Paused
	s.service = s.At(time.Duration(s.now))
	if s.service.Slowness == 0 {
		s.service.Slowness = 1
	}
	if s.service.Paused && !was {
		s.paused = s.now
	}
	if was && !s.service.Paused {
		var all []*request
		for r, _ := s.running.First(); r != nil; r, _ = s.running.First() {
			s.running.Remove(&r.node)
			all = append(all, r)
		}
		for _, r := range all {
			r.ends += s.now - s.paused
			s.running.Push(&r.node, r, r.ends)
		}
	}
	b := s.bin()
	b.Limit, b.InFlight = s.limiter.Limit(), s.inFlight
	s.fill()
	s.after(int64(s.Step), s.change)
}

// arrive sends a request, and the next one after a random time.
func (s *Simulation) arrive() {
	if s.service.Rate <= 0 {
		s.after(int64(s.Step), s.arrive)
		return
	}
	s.send(0)
	s.after(int64(s.rnd.ExpFloat64()/s.service.Rate*1e9), s.arrive)
}

func (s *Simulation) send(tries int) {
	b := s.bin()
	if tries == 0 {
		b.Offered++
		if s.Budget != nil {
			s.Budget.Request()
		}
	}
	done, ok := s.limiter.Enter()
	if !ok {
		b.Refused++
		s.again(tries)
		return
	}
	r := &request{began: s.now, tries: tries, done: done, work: int64(s.Work(s.rnd))}
	if s.service.Queue > 0 && len(s.queue)-s.head >= s.service.Queue && (s.service.Paused || s.running.Len() >= s.service.Workers) {
		b.Dropped++
		// a refusal by the service takes a millisecond
		s.inFlight++
		s.after(1e6, func() { s.inFlight--; done(weir.Dropped); s.again(tries) })
		return
	}
	s.inFlight++
	if s.Abandon > 0 {
		s.after(int64(s.Abandon), func() { s.abandon(r) })
	}
	s.queue = append(s.queue, r)
	s.fill()
}

// abandon ends a request whose client gives up. The service goes on with it.
func (s *Simulation) abandon(r *request) {
	if r.gone {
		return
	}
	r.gone = true
	s.inFlight--
	s.bin().Dropped++
	r.done(weir.Dropped)
	s.again(r.tries)
}

func (s *Simulation) again(tries int) {
	if tries < s.Retries && (s.Budget == nil || s.Budget.Retry()) {
		s.after(int64(s.rnd.ExpFloat64()*float64(s.Pause)), func() { s.send(tries + 1) })
	}
}

// fill gives free workers the requests that queue.
func (s *Simulation) fill() {
	for s.head < len(s.queue) && s.running.Len() < s.service.Workers && !s.service.Paused {
		r := s.queue[s.head]
		s.queue[s.head] = nil
		if s.head++; s.head == len(s.queue) {
			s.queue, s.head = s.queue[:0], 0
		}
		r.ends = s.now + max(int64(float64(r.work)*s.service.Slowness), 1)
		s.running.Push(&r.node, r, r.ends)
	}
}

func (s *Simulation) finish(r *request) {
	if r.gone {
		return
	}
	r.gone = true
	s.inFlight--
	b := s.bin()
	b.Good++
	b.Latencies = append(b.Latencies, time.Duration(s.now-r.began))
	r.done(weir.OK)
}

// A Summary is what happened between two times.
type Summary struct {
	Offered, Good, Refused, Dropped int
	P50, P99                        time.Duration
	Limit                           float64 // the average
	Lowest, Highest                 int64   // limits
}

// Between sums up the bins of a time.
func Between(bins []Bin, from, until time.Duration) (s Summary) {
	var all []time.Duration
	bins = bins[from/BinWidth : min(int(until/BinWidth), len(bins))]
	s.Lowest = math.MaxInt64
	for _, b := range bins {
		s.Offered += b.Offered
		s.Good += b.Good
		s.Refused += b.Refused
		s.Dropped += b.Dropped
		s.Limit += float64(b.Limit) / float64(len(bins))
		s.Lowest, s.Highest = min(s.Lowest, b.Limit), max(s.Highest, b.Limit)
		all = append(all, b.Latencies...)
	}
	slices.Sort(all)
	if n := len(all); n > 0 {
		s.P50, s.P99 = all[n/2], all[n*99/100]
	}
	return s
}

// Exponential returns service times of an exponential distribution.
func Exponential(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

// HeavyTail returns service times of a log-normal distribution, of which one in a hundred takes
// more than 8 times the median.
func HeavyTail(mean time.Duration) func(*rand.Rand) time.Duration {
	const sigma = 0.9
	return func(r *rand.Rand) time.Duration {
		return time.Duration(math.Exp(sigma*r.NormFloat64()-sigma*sigma/2) * float64(mean))
	}
}

// Constant returns the same service time for all.
func Constant(d time.Duration) func(*rand.Rand) time.Duration {
	return func(*rand.Rand) time.Duration { return d }
}
