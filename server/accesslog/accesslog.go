// Package accesslog writes one line per request, as web servers do, without delaying any request.
package accesslog

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the destination and the format of an access log.
type Options struct {
	File   string    // a path, or "stdout" or "stderr"
	Format string    // "common", "combined" or "json"; default: combined
	Stdout io.Writer // default: os.Stdout
	Stderr io.Writer // default: os.Stderr
}

const (
	maxQueue = 4 << 20         // bytes waiting to be written; further lines are dropped and counted
	full     = 64 << 10        // as many waiting bytes are written at once
	flush    = time.Second / 2 // the longest time until a line is written
)

// A Log is an access log. It buffers lines in memory, and its own goroutine writes them until
// Close. All methods are safe for concurrent use.
type Log struct {
	options Options
	append  func([]byte, *Entry) []byte
	dropped atomic.Uint64
	failed  atomic.Uint64

	mu    sync.Mutex
	queue []byte
	spare []byte // the other buffer, while it is not being written

	wake   chan struct{}
	reopen chan chan error
	done   chan struct{}
	ended  chan struct{}
	once   sync.Once
}

// Open opens a log. It appends to the file, and creates it if necessary.
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
		return nil, fmt.Errorf("access_log: unknown format %q: write common, combined or json", o.Format)
	}
	out, err := l.open()
	if err != nil {
		return nil, err
	}
	go l.run(out)
	return l, nil
}

// open opens the destination.
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

// keptOpen is a writer that Close must not close: standard output or error.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }

// Write adds a line. It never blocks: if the buffer is full, it drops the line.
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

// Dropped returns how many lines were dropped, and how many writes failed.
func (l *Log) Dropped() (lines, failures uint64) { return l.dropped.Load(), l.failed.Load() }

// Reopen opens the file again, after it was moved. On an error, the log continues with the old
// file.
func (l *Log) Reopen() error {
	answer := make(chan error, 1)
	select {
	case l.reopen <- answer:
		return <-answer
	case <-l.ended:
		return nil
	}
}

// Close writes the buffered lines and closes the log. Later lines are lost.
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

// flush writes the buffered lines in one call, so that two processes can append to one file.
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
		lines = nil // do not keep the memory of a rush
	}
	l.mu.Lock()
	l.spare = lines[:0]
	l.mu.Unlock()
}
