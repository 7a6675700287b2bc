package accesslog

import (
	"errors"
	"sync/atomic"
	"time"
)

// losses counts lines that were lost, and has the server's log say so once, not for each line.
type losses struct {
	dropped, failed atomic.Uint64

	losing    atomic.Bool  // the latest lines were lost
	announced atomic.Bool  // the server's log says so
	last      atomic.Int64 // when that was last said, in nanoseconds since 1970
	logging   atomic.Bool
}

// announceEvery bounds how often a disk that is full now and then is logged.
const announceEvery = time.Minute

var errFull = errors.New("lines come faster than they are written: the buffer of 4 MiB is full")

// drop counts a line for which the buffer had no room.
func (l *losses) drop(o Options) {
	l.dropped.Add(1)
	l.begin(o, errFull)
}

// fail counts lines that could not be written.
func (l *losses) fail(o Options, lines int, err error) {
	l.failed.Add(uint64(lines))
	l.begin(o, err)
}

// begin logs that lines are lost, unless the log says so already.
func (l *losses) begin(o Options, err error) {
	l.losing.Store(true)
	if l.announced.Load() {
		return
	}
	now, last := time.Now().UnixNano(), l.last.Load()
	if last != 0 && now-last < int64(announceEvery) || !l.last.CompareAndSwap(last, now) {
		return
	}
	l.announced.Store(true)
	l.log(o, func() {
		o.Log.Error("access log: lines are lost, and counted in weir_access_log_lost_total", "file", o.File, "error", err)
	})
}

// recover logs that lines are written again.
func (l *losses) recover(o Options) {
	if !l.losing.Load() {
		return
	}
	l.losing.Store(false)
	if l.announced.Swap(false) {
		dropped, failed := l.dropped.Load(), l.failed.Load()
		l.log(o, func() {
			o.Log.Info("access log: lines are written again", "file", o.File, "lost", dropped+failed)
		})
	}
}

// log writes to the server's log in a goroutine, one at a time: that log may stand still as the
// access log does, and requests must not wait for it.
func (l *losses) log(o Options, write func()) {
	if o.Log == nil || l.logging.Swap(true) {
		return
	}
	go func() {
		defer l.logging.Store(false)
		write()
	}()
}
