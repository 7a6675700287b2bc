//go:build !unix

package signals

import (
	"errors"
	"io"
	"os"
)

// A file is open for reading.
type file struct{ *os.File }

func open(name string) (file, error) {
	f, err := os.Open(name)
	return file{f}, err
}

// read returns 0 and no error at the end.
func (f file) read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (f file) close() { _ = f.File.Close() }
