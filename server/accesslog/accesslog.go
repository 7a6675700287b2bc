// Package accesslog writes a line for each request, as web servers do, without ever holding a request up.
package accesslog

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options say where lines go and what they look like.
type Options struct {
	File   string    // a path, or "stdout" or "stderr"
	Format string    // "common", "combined" or "json"; empty means combined
	Stdout io.Writer // what stdout stands for; nil means os.Stdout
	Stderr io.Writer // what stderr stands for; nil means os.Stderr
}

const (
	maxQueue = 4 << 20         // bytes of lines that were not written yet: further ones are dropped, and counted
	full     = 64 << 10        // bytes that are written without waiting for more
	flush    = time.Second / 2 // after which lines are written in any case
)

// A Log is an access log. Its lines are gathered in memory and written by a goroutine of its own, which Close ends. All methods are safe to use
// concurrently.
type Log struct {
	options Options
	append  func([]byte, *Entry) []byte
	dropped atomic.Uint64
	failed  atomic.Uint64

	mu    sync.Mutex
	queue []byte
	spare []byte // the other buffer, when it is not being written

	wake   chan struct{}
	reopen chan chan error
	done   chan struct{}
	ended  chan struct{}
	once   sync.Once
}

// Open opens a log. A file is appended to, and made if it is not there.
func Open(o Options) (*Log, error) {
	l := &Log{
		options: o, wake: make(chan struct{}, 1), reopen: make(chan chan error), done: make(chan struct{}), ended: make(chan struct{}),
	}
	switch o.Format {
	case "", "combined":
		l.append = appendCombined
	case "common":
		l.append = appendCommon
	case "json":
		l.append = appendJSON
	default:
		return nil, fmt.Errorf("access_log: there is no format %q: write common, combined or json", o.Format)
	}
	out, err := l.open()
	if err != nil {
		return nil, err
	}
	go l.run(out)
	return l, nil
}

// open opens what the lines go to.
func (l *Log) open() (io.WriteCloser, error) {
	or := func(w io.Writer, otherwise *os.File) io.WriteCloser {
		if w == nil {
			w = otherwise
		}
		return keptOpen{w}
	}
	switch l.options.File {
	case "stdout":
		return or(l.options.Stdout, os.Stdout), nil
	case "stderr":
		return or(l.options.Stderr, os.Stderr), nil
	}
	f, err := os.OpenFile(l.options.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access_log: %w", err)
	}
	return f, nil
}

// keptOpen is a writer that is not ours to close.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }

// Write adds a line. It never waits: where lines are not written as fast as they come, it is dropped.
func (l *Log) Write(e *Entry) {
	l.mu.Lock()
	if len(l.queue) >= maxQueue {
		l.mu.Unlock()
		l.dropped.Add(1)
		return
	}
	before := len(l.queue)
	l.queue = l.append(l.queue, e)
	now := len(l.queue)
	l.mu.Unlock()
	if before < full && now >= full {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Dropped is how many lines were dropped since they came too fast, and how many writes failed.
func (l *Log) Dropped() (lines, failures uint64) { return l.dropped.Load(), l.failed.Load() }

// Reopen opens the file again, after it was moved away. On an error the old one goes on.
func (l *Log) Reopen() error {
	answer := make(chan error, 1)
	select {
	case l.reopen <- answer:
		return <-answer
	case <-l.ended:
		return nil
	}
}

// Close writes what is there and ends the log. Lines that come later are lost.
func (l *Log) Close() error {
	l.once.Do(func() { close(l.done) })
	<-l.ended
	return nil
}

// run writes lines until the log is closed.
func (l *Log) run(out io.WriteCloser) {
	defer close(l.ended)
	defer func() { out.Close() }()
	ticker := time.NewTicker(flush)
	defer ticker.Stop()
	for {
		select {
		case <-l.wake:
			l.flush(out)
		case <-ticker.C:
			l.flush(out)
		case answer := <-l.reopen:
			next, err := l.open()
			if err == nil {
				l.flush(out)
				out.Close()
				out = next
			}
			answer <- err
		case <-l.done:
			l.flush(out)
			return
		}
	}
}

// flush writes what has been gathered, in whole lines and in one call: so two processes can append to one file.
func (l *Log) flush(out io.Writer) {
	l.mu.Lock()
	lines := l.queue
	l.queue, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	if len(lines) > 0 {
		if _, err := out.Write(lines); err != nil {
			l.failed.Add(1)
		}
	}
	if cap(lines) > 4*full {
		lines = nil // a rush is over some time
	}
	l.mu.Lock()
	l.spare = lines[:0]
	l.mu.Unlock()
}
