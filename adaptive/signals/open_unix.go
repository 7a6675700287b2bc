//go:build unix

package signals

import (
	"errors"
	"io/fs"
	"syscall"
)

// A file is open for reading. The files of the kernel are read at once: package os would watch those
// that can be polled, which takes as long as reading them.
type file int

func open(name string) (file, error) {
	for {
		fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		switch {
		case err == nil:
			return file(fd), nil
		case !errors.Is(err, syscall.EINTR):
			return 0, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// read returns 0 and no error at the end.
func (f file) read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(int(f), b)
		switch {
		case err == nil:
			return n, nil
		case !errors.Is(err, syscall.EINTR):
			return 0, err
		}
	}
}

func (f file) close() { _ = syscall.Close(int(f)) }
