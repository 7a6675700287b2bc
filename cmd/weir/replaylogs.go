package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/term"

	"github.com/weirflow/weir/sim"
)

// openLogs opens all logs before it reads any, so that a wrong name is reported at once.
func openLogs(ctx context.Context, names []string, stdin io.Reader, o *sim.Options, read *atomic.Int64) (total int64, closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, f := range files {
			f.Close()
		}
	}
	o.Zstd = openZstd
	for i, name := range names {
		r := stdin
		if name == "-" {
			total = -1
			if i != len(names)-1 && slices.Contains(names[i+1:], "-") {
				return total, closeAll, &usageError{errors.New("- is standard input, which can be read only once: write it once")}
			}
		} else {
			f, err := opened(ctx, func() (*os.File, error) { return os.Open(name) })
			if err != nil {
				return total, closeAll, fileError(err)
			}
			files = append(files, f)
			info, err := f.Stat()
			switch {
			case err != nil:
				return total, closeAll, fileError(err)
			case info.IsDir():
				return total, closeAll, &usageError{fmt.Errorf("%s is a directory: name its files", name)}
			case total >= 0:
				total += info.Size()
			}
			r = f
		}
		var counted io.Reader = countingReader{r, read}
		if f, ok := r.(*os.File); ok {
			counted = countingFile{countingReader{f, read}, f}
		}
		o.Inputs = append(o.Inputs, sim.Input{Name: name, R: counted})
	}
	return total, closeAll, nil
}

// countingReader counts the bytes read so far, for the progress bar.
type countingReader struct {
	io.Reader
	n *atomic.Int64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// countingFile is a countingReader of a file, which can be read again.
type countingFile struct {
	countingReader
	f *os.File
}

func (c countingFile) Seek(offset int64, whence int) (int64, error) {
	before, err := c.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	at, err := c.f.Seek(offset, whence)
	if err == nil {
		c.n.Add(at - before)
	}
	return at, err
}

// openZstd decompresses a log. A window of more than 128 MiB, which no log needs, is an error.
func openZstd(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// progressBar shows the progress of a replay on a terminal.
type progressBar struct {
	w     io.Writer // nil without a terminal
	total int64     // bytes; below 0: unknown
	read  *atomic.Int64
	last  time.Time
}

const barWidth = 40

func newProgressBar(w io.Writer, total int64, read *atomic.Int64) *progressBar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &progressBar{w: w, total: total, read: read}
}

// show updates the bar with how many requests were read and decided. Reading fills its first half.
func (b *progressBar) show(requests, decided int64) {
	if b.w == nil || time.Since(b.last) < 100*time.Millisecond {
		return
	}
	b.last = time.Now()
	if b.total < 0 && decided == 0 {
		fmt.Fprintf(b.w, "\r\x1b[K%d requests read", requests)
		return
	}
	done := 0.5
	switch {
	case decided > 0:
		done += 0.5 * float64(decided) / float64(max(requests, 1))
		if read := b.read.Load(); read < b.total { // decided while it is read
			done = float64(read) / float64(b.total)
		}
	case b.total > 0:
		done = 0.5 * float64(b.read.Load()) / float64(b.total)
	}
	filled := min(int(done*barWidth), barWidth)
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %3.0f %%  %d requests", strings.Repeat("=", filled), strings.Repeat(" ", barWidth-filled), 100*done, requests)
}

// clear removes the bar.
func (b *progressBar) clear() {
	if b.w != nil {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
