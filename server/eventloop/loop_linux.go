package eventloop

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirflow/weir/internal/heap"
)

// A loop is an epoll instance with the connections that are registered in it.
//
// The instance itself is registered with the runtime's poller. So a driver without work parks like any
// goroutine that waits for its file, and blocks no thread.
type loop struct {
	group *Group
	epoll int
	bell  int      // an eventfd in the instance, which wakes the driver
	file  *os.File // the instance, for the runtime
	raw   syscall.RawConn
	poll  func(uintptr) bool // one closure for all waits
	yield func(uintptr) bool

	// owner says who may use the driver's fields: the number of the last turn, twice, and 1 more while
	// that turn runs. A turn is one call of Serve in the driver. The goroutine that changes the number of a turn
	// that runs has taken the loop over.
	owner  atomic.Uint64
	asleep atomic.Bool  // the driver is parked, or about to be
	now    atomic.Int64 // when the driver looked for events last

	// used by the driver alone
	events  [128]unix.EpollEvent
	found   [128]*Conn // the connections of events
	n       int        // how many of events the last poll returned
	polls   int        // since the driver was about to park; more than one if it has parked
	batch   []*Conn    // to be served
	at      int        // the next of batch
	yielded int64      // when the driver parked last

	mu     sync.Mutex
	slots  []slot   // of connections; the first is the bell's
	free   []uint32 // unused slots
	inbox  []*Conn  // to be served, for other reasons than an event
	dues   heap.Heap[Conn]
	alarm  int64 // when the deadline of file ends; 0 for none
	ended  bool  // it has no connections, and gets none
	closed bool  // its driver has ended
}

// A slot is where an event finds its connection. Its age is raised when the connection is closed, so
// that an event that is older finds none.
type slot struct {
	conn *Conn
	age  uint32
}

// yieldEvery is how long a busy driver keeps its processor from other goroutines, and from the runtime's
// poller: the runtime polls where no goroutine is left to run, and otherwise every 10 ms. So the driver
// parks, and is woken by the poller. runtime.Gosched would not have it polled, and would wake an idle
// thread each time.
const yieldEvery = time.Millisecond

func newLoop(g *Group) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the driver would need a thread of its own
		return nil, errors.Join(err, unix.Close(fd))
	}
	l := &loop{group: g, epoll: fd, file: os.NewFile(uintptr(fd), "eventloop"), slots: make([]slot, 1)}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	if l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, l.bell, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		return nil, errors.Join(err, unix.Close(l.bell), l.file.Close())
	}
	l.poll = func(uintptr) bool {
		l.polls++
		l.n = l.wait()
		return l.n != 0
	}
	rung := false
	l.yield = func(uintptr) bool {
		if rung = !rung; rung {
			l.ring() // an event for the runtime's poller, which returns then
			return false
		}
		l.n = l.wait()
		return true
	}
	return l, nil
}

func isRunning(owner uint64) bool { return owner&1 == 1 }

// run drives the loop until it is taken over or has ended.
func (l *loop) run(d *driver) {
	l.now.Store(l.group.now()) // the turn that was taken over from may have lasted
	for {
		for l.at < len(l.batch) {
			c := l.batch[l.at]
			l.batch[l.at] = nil
			l.at++
			if !l.turn(d, c) {
				return
			}
		}
		if l.batch, l.at = l.batch[:0], 0; !l.fill() {
			return
		}
	}
}

// turn serves a connection. It reports false if the loop was taken over meanwhile.
func (l *loop) turn(d *driver, c *Conn) bool {
	running := l.owner.Load() + 3 // the next turn, running
	d.running = running
	c.turn.Store(running)
	l.owner.Store(running)
	if !l.group.watched.Load() {
		l.group.watch()
	}
	c.handler.Serve()
	return l.owner.CompareAndSwap(running, running-1)
}

// takeOver gives the loop to another driver while a turn runs. It does nothing if the turn has ended,
// or the loop was taken over before.
func (l *loop) takeOver(running uint64) {
	if isRunning(running) && l.owner.CompareAndSwap(running, running+1) {
		l.group.handOver(l)
	}
}

// fill waits until there is something to serve, and puts it into batch. It reports false if the loop
// has ended.
func (l *loop) fill() bool {
	for len(l.batch) == 0 {
		l.n = 0
		if now := l.group.now(); now-l.yielded >= int64(yieldEvery) {
			l.yielded = now
			_ = l.raw.Read(l.yield) // it fails at the alarm, which collect sees
		} else {
			l.park()
		}
		if !l.collect() {
			return false
		}
	}
	return true
}

// park waits for an event, for something in the inbox, or for the alarm. It does not wait if there is
// one already.
func (l *loop) park() {
	l.polls = 0
	l.asleep.Store(true)
	if !l.isAwaited() {
		_ = l.raw.Read(l.poll) // it fails at the alarm, which collect sees
	}
	l.asleep.Store(false)
	if l.polls > 1 {
		l.yielded = l.group.now()
	}
}

// isAwaited reports whether there is something to do besides events. A post that it does not see sees
// that the driver sleeps, and rings.
func (l *loop) isAwaited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inbox) > 0 || l.ended
}

// wait polls the epoll instance without waiting, and returns the number of events.
func (l *loop) wait() int { return epollWait(l.epoll, l.events[:]) }

// collect puts into batch what is to be served: connections with events, those of the inbox, and those
// that have waited long enough. It reports false if the loop has ended.
func (l *loop) collect() bool {
	now := l.group.now()
	l.now.Store(now)
	l.mu.Lock()
	for i := range l.n { // first, as the inbox is emptied next
		at, age := uint32(l.events[i].Fd), uint32(l.events[i].Pad)
		if at == 0 {
			l.unring()
		} else if s := l.slots[at]; s.age == age {
			l.found[i] = s.conn
		}
	}
	l.batch = append(l.batch, l.inbox...)
	clear(l.inbox)
	l.inbox = l.inbox[:0]
	if l.alarm != 0 && now >= l.alarm {
		l.expire(now)
	}
	if l.ended && len(l.batch) == 0 {
		l.closed = true
		l.file.Close()
		unix.Close(l.bell) //nolint:errcheck // nothing is in it
		l.mu.Unlock()
		return false
	}
	l.mu.Unlock()
	for i := range l.n {
		c := l.found[i]
		if c == nil {
			continue
		}
		l.found[i] = nil
		if c.happened(l.events[i].Events) {
			l.batch = append(l.batch, c)
		}
	}
	l.n = 0
	return true
}

// expire serves the connections that have waited long enough. l.mu is locked.
//
// A connection's place among dues is the end of an earlier wait, mostly: each request begins another
// wait, which ends later, and moving the connection for each would take long.
func (l *loop) expire(now int64) {
	for {
		c := l.dues.Due(now)
		if c == nil {
			break
		}
		l.dues.Remove(&c.node)
		c.due.Store(0)
		switch until := c.until.Load(); {
		case until == 0 || c.state.Load()&parked == 0:
		case until > now:
			l.dues.Push(&c.node, c, until)
			c.due.Store(until)
		case c.unpark():
			l.batch = append(l.batch, c)
		}
	}
	_, next := l.dues.First()
	l.setAlarm(next)
}

// setAlarm wakes the driver at a time; 0 for never. l.mu is locked.
func (l *loop) setAlarm(at int64) {
	l.alarm = at
	t := time.Time{}
	if at != 0 {
		t = l.group.base.Add(time.Duration(at))
	}
	_ = l.file.SetReadDeadline(t) // it fails only where the loop has ended
}

// remind serves a connection that still waits then.
func (l *loop) remind(c *Conn, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.isClosed():
		return
	case !c.node.In():
		l.dues.Push(&c.node, c, until)
	case l.dues.Key(&c.node) > until:
		l.dues.Move(&c.node, until)
	default:
		return
	}
	c.due.Store(until)
	if l.alarm == 0 || until < l.alarm {
		l.setAlarm(until)
	}
}

// post has a connection served that is not parked.
func (l *loop) post(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		go c.handler.Serve() // the connection is closed, and its Handler has to learn that
		return
	}
	l.inbox = append(l.inbox, c)
	l.wake()
}

// wake has the driver look at the inbox. l.mu is locked, so that the bell is not closed.
func (l *loop) wake() {
	if l.asleep.Swap(false) {
		l.ring()
	}
}

// ring makes an event, and unring lets the next one be seen.
func (l *loop) ring() {
	one := [8]byte{1}
	_, _ = write(l.bell, one[:]) // a bell that is full has an event
}

func (l *loop) unring() {
	var sum [8]byte
	_, _ = read(l.bell, sum[:]) // it may have been rung once for two events
}

// add registers a connection, and reports false if the system refuses.
func (l *loop) add(c *Conn) bool {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		c.at = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		c.at = uint32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	s := &l.slots[c.at]
	s.conn, c.age = c, s.age
	l.mu.Unlock()
	if l.control(unix.EPOLL_CTL_ADD, c, received) != nil {
		l.remove(c)
		return false
	}
	return true
}

// received are the events of what a client sends, and of its end.
const received = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP

// control registers a connection for events. Each is reported once, when it happens.
func (l *loop) control(op int, c *Conn, events uint32) error {
	e := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(c.at), Pad: int32(c.age)}
	return unix.EpollCtl(l.epoll, op, c.fd, &e)
}

// remove forgets a connection. The system does so when its socket is closed.
func (l *loop) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots[c.at] = slot{age: c.age + 1}
	l.free = append(l.free, c.at)
	if c.node.In() {
		l.dues.Remove(&c.node)
		c.due.Store(0)
	}
}

// end ends the loop, once its driver has served what is in the inbox.
func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wake()
}
