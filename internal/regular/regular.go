// Package regular opens files whose names come from a configuration. Opening one never blocks: a
// named pipe, which blocks until somebody writes to it, a device and a socket are errors. Reads of
// one that has nothing to say yet end with an error too.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrIrregular is found by errors.Is in the error about what is not a regular file.
var ErrIrregular = errors.New("it is not a regular file")

// Open opens a regular file, or a link to one, for reading.
func Open(path string) (*os.File, error) {
	// Looked at before it is opened, as opening a device may do something; and after, as it may have
	// been replaced in between. Then O_NONBLOCK keeps a named pipe from blocking.
	info, err := os.Stat(path)
	if stat, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: stat.Err} // that is what it was looked at for
	}
	if err != nil {
		return nil, err
	}
	irregular := &fs.PathError{Op: "open", Path: path, Err: ErrIrregular}
	if !info.Mode().IsRegular() {
		return nil, irregular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, irregular
	}
	bound(f, readTime)
	return f, nil
}

// readTime is how long a file that can make a reader wait is read at most.
const readTime = 10 * time.Second

// bound ends reads that wait. Some files count as regular, and make a reader wait nevertheless, like
// /proc/kmsg, until the kernel says something. They have deadlines, as a connection has; a file on a
// disk neither has nor needs one.
func bound(f *os.File, within time.Duration) {
	_ = f.SetReadDeadline(time.Now().Add(within)) // os.ErrNoDeadline for a file on a disk
}

// Read returns the content of a regular file of at most limit bytes.
func Read(path string, limit int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
