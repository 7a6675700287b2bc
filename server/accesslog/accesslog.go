// Package accesslog writes one line per request, as web servers do, without delaying any request.
package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// Options are the destination and the format of an access log.
type Options struct {
	File   string    // a path, or "stdout" or "stderr"
	Format string    // "common", "combined" or "json"; default: combined
	Stdout io.Writer // default: os.Stdout
	Stderr io.Writer // default: os.Stderr

	// Log gets a message when lines begin to be lost, at most once a minute, and when lines are written
	// again; default: none
	Log *slog.Logger
}

const (
	maxQueue = 4 << 20         // bytes waiting to be written; further lines are dropped and counted
	full     = 64 << 10        // as many waiting bytes are written at once
	flush    = time.Second / 2 // the longest time until a line is written
	patience = 2 * time.Second // how long Close and Reopen wait for a disk or a reader that stands
)

// A Log is an access log. It buffers lines in memory, and its own goroutine writes them until
// Close. All methods are safe for concurrent use.
type Log struct {
	options Options
	append  func([]byte, *Entry) []byte
	lost    losses

	mu    sync.Mutex
	queue []byte
	spare []byte // the other buffer, while it is not being written
	torn  bool   // the last write ended within a line; only run uses it

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
	// O_NONBLOCK: a named pipe that nobody reads is an error, and does not block.
	f, err := os.OpenFile(l.options.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
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
		l.lost.drop(l.options)
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

// Lost returns how many lines were lost because more were waiting than the buffer holds, and how
// many because they could not be written.
func (l *Log) Lost() (dropped, failed uint64) { return l.lost.dropped.Load(), l.lost.failed.Load() }

var errStands = errors.New("a write does not end: the disk, or the reader of a pipe, is stuck")

// Reopen opens the file again, after it was moved. On an error, the log continues with the old file.
// It waits two seconds for a write that does not end.
func (l *Log) Reopen() error {
	answer := make(chan error, 1)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case l.reopen <- answer:
	case <-l.ended:
		return nil
	case <-late.C:
		return errStands
	}
	select {
	case err := <-answer:
		return err
	case <-late.C:
		return errStands
	}
}

// Close writes the buffered lines and closes the log. Later lines are lost. It waits two seconds for
// a write that does not end, and leaves it behind.
func (l *Log) Close() error {
	l.once.Do(func() { close(l.done) })
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-l.ended:
		return nil
	case <-late.C:
		return errStands
	}
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
				out, l.torn = next, false
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
		l.write(out, lines)
	}
	if cap(lines) > 4*full {
		lines = nil // do not keep the memory of a rush
	}
	l.mu.Lock()
	l.spare = lines[:0]
	l.mu.Unlock()
}

// write writes lines, and counts those that were lost. A disk that is full may take a part of them:
// the line that was cut off there is ended before the next one.
func (l *Log) write(out io.Writer, lines []byte) {
	if l.torn {
		if _, err := out.Write([]byte("\n")); err != nil {
			l.lost.fail(l.options, bytes.Count(lines, []byte("\n")), err)
			return
		}
		l.torn = false
	}
	n, err := out.Write(lines)
	if err == nil {
		l.lost.recover(l.options)
		return
	}
	n = max(0, min(n, len(lines)))
	rest := lines[n:]
	l.torn = n > 0 && lines[n-1] != '\n'
	if l.torn && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:] // of this line only the end lacks, and it comes before the next line
	}
	l.lost.fail(l.options, bytes.Count(rest, []byte("\n")), err)
}
