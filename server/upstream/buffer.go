package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/weirflow/weir/policy"
)

// Request bodies are buffered before a target gets the request, so that clients that send slowly hold
// no worker of a target that has few. A buffer begins in memory and goes on in a temporary file. A
// longer body fills its buffer first, whatever length its header announces, because a header costs a
// client nothing.

const (
	defaultBuffer = 1 << 20 // most bytes of a body that are buffered, in memory and in a file
	minPart       = 2 << 10 // memory is taken in parts, as bytes arrive
	maxPart       = 32 << 10
	maxMemory     = 64 << 20 // of all buffers, and of bodies that limits read
	maxBuffered   = 48 << 20 // of all buffers: without memory they go on in files, and bodies that limits read cannot
	maxFiles      = 1 << 30  // of all buffers
)

// errNoSpace is the error of a body for which neither memory nor room in files is left.
var errNoSpace = errors.New("request buffers: the memory is used up, and so are the files for all requests, or this client's share of them")

// space is what all buffers of a Set use together.
type space struct {
	memory, files         atomic.Int64
	noMemory, noFileSpace atomic.Uint64 // reservations that found too little room
	undecided             atomic.Uint64 // those of bodies that are read before the decision
	maxMemory, maxFiles   int64
	forUndecided          int64 // of memory beyond maxMemory, for bodies that limits read

	clients policy.BodyShares // of the files
}

// filesOf returns the files for the bodies of a request's client.
func (s *space) filesOf(ctx context.Context) policy.BodyMemory {
	return s.clients.Of(ClientOf(ctx), (*fileSpace)(s))
}

// fileSpace is the part of a space that is in files.
type fileSpace space

// Reserve takes room in files, if there is enough.
func (s *fileSpace) Reserve(n int64) bool { return reserve(&s.files, n, s.maxFiles) }

// Release gives room back.
func (s *fileSpace) Release(n int64) { s.files.Add(-n) }

// Free returns how much room is left.
func (s *fileSpace) Free() int64 { return s.maxFiles - s.files.Load() }

// Refused counts a request that found no room.
func (s *fileSpace) Refused() { s.noFileSpace.Add(1) }

// BufferStats are the sizes of all request buffers, and how many requests found their bound reached.
type BufferStats struct {
	Memory, Files         int64  // bytes in use
	NoMemory, NoFileSpace uint64 // requests that went to a file for lack of memory; that were refused
	Undecided             uint64 // requests refused for lack of memory for a body that limits read
}

// Buffers returns what all request buffers use.
func (s *Set) Buffers() BufferStats {
	all := s.opts.space
	return BufferStats{all.memory.Load(), all.files.Load(), all.noMemory.Load(), all.noFileSpace.Load(), all.undecided.Load()}
}

// Memory returns the memory of all request buffers, for bodies that limits read.
func (s *Set) Memory() policy.SharedMemory { return s.opts.space }

// Reserve takes memory for a body that limits read, if there is enough.
func (s *space) Reserve(n int64) bool { return reserve(&s.memory, n, s.maxMemory+s.forUndecided) }

// Free returns how much memory is left for such bodies.
func (s *space) Free() int64 { return s.maxMemory + s.forUndecided - s.memory.Load() }

// Refused counts a request that found no memory for such a body.
func (s *space) Refused() { s.undecided.Add(1) }

// Release gives memory back.
func (s *space) Release(n int64) { s.memory.Add(-n) }

func reserve(used *atomic.Int64, n, most int64) bool {
	if used.Add(n) <= most {
		return true
	}
	used.Add(-n)
	return false
}

type (
	bufferKey struct{}
	clientKey struct{}
)

// WithClient returns a context for the requests of a client. Its buffered bodies take no more room in
// files than remains free after them. Requests without a client are those of one.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// ClientOf returns the client of a context; "" if there is none.
func ClientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}

// WithBuffer returns a context for requests that are buffered in this way, and not as the upstream's
// settings say.
func WithBuffer(ctx context.Context, b policy.Buffer) context.Context {
	return context.WithValue(ctx, bufferKey{}, b)
}

// buffering returns how many bytes of the body of a request are buffered in memory and in all; 0 if
// it is streamed.
func buffering(r *http.Request, spec *Spec) (memory, total int64) {
	b, ofRequest := r.Context().Value(bufferKey{}).(policy.Buffer)
	if !ofRequest {
		b = spec.BufferRequest
	}
	switch {
	case b.Off, b == (policy.Buffer{}) && !spec.isHTTP1():
		return 0, 0
	case !spec.isHTTP1() && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		return 0, 0 // a call of gRPC may go on in both directions, and an HTTP/1 target knows none
	}
	memory = either(b.Memory, defaultBuffer)
	return memory, max(memory, b.File)
}

// isHTTP1 reports whether all targets certainly speak HTTP/1.
func (s *Spec) isHTTP1() bool {
	switch s.Protocol {
	case "http1":
		return true
	case "", "auto":
		for _, t := range s.All() {
			if !strings.HasPrefix(t.URL, "http:") {
				return false
			}
		}
		return true
	}
	return false
}

// buffer is a body, or the beginning of one.
type buffer struct {
	space  *space
	files  policy.BodyMemory // of space, for the client
	length int64             // of the body; -1 for unknown
	memory int64             // most bytes in memory
	most   int64             // most bytes in all

	parts  [][]byte
	taken  int64    // of space.memory
	file   *os.File // nil for none; it has no name
	inFile int64
	size   int64
}

// fill reads a body to its end, or until the buffer is full. whole is false for the latter.
func (b *buffer) fill(from io.Reader) (whole bool, err error) {
	var scratch []byte // on the way to the file
	for b.size < b.most {
		if last := len(b.parts) - 1; b.file == nil && (last < 0 || len(b.parts[last]) == cap(b.parts[last])) {
			if err := b.grow(); err != nil {
				return false, err
			}
		}
		var n int
		if b.file == nil {
			last := &b.parts[len(b.parts)-1]
			free := (*last)[len(*last):cap(*last)]
			n, err = from.Read(free[:min(int64(len(free)), b.most-b.size)])
			*last = (*last)[:len(*last)+n]
		} else {
			if scratch == nil {
				scratch = make([]byte, maxPart)
			}
			n, err = from.Read(scratch[:min(maxPart, b.most-b.size)])
			if wrong := b.write(scratch[:n]); wrong != nil {
				return false, wrong
			}
		}
		b.size += int64(n)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// grow adds a part in memory, or opens the file.
func (b *buffer) grow() error {
	n := max(minPart, b.size) // doubles what there is
	if b.length >= b.size {
		n = b.length + 1 - b.size
	}
	n = min(n, maxPart, b.memory-b.size)
	if n > 0 {
		if reserve(&b.space.memory, n, b.space.maxMemory) {
			b.taken += n
			b.parts = append(b.parts, make([]byte, 0, n))
			return nil
		}
		b.space.noMemory.Add(1)
	}
	file, err := os.CreateTemp("", "weir-body-*")
	if err != nil {
		return &LocalError{err}
	}
	b.file = file
	if err := os.Remove(file.Name()); err != nil { // the file lasts until it is closed
		return &LocalError{err}
	}
	return nil
}

func (b *buffer) write(p []byte) error {
	if !b.files.Reserve(int64(len(p))) {
		return &LocalError{errNoSpace}
	}
	b.inFile += int64(len(p))
	if _, err := b.file.Write(p); err != nil {
		return &LocalError{err}
	}
	return nil
}

// open returns a reader of all that was buffered.
func (b *buffer) open() io.Reader {
	all := make([]io.Reader, 0, len(b.parts)+1)
	for _, p := range b.parts {
		all = append(all, bytes.NewReader(p))
	}
	if b.file != nil {
		all = append(all, io.NewSectionReader(b.file, 0, b.inFile))
	}
	return io.MultiReader(all...)
}

// free gives back what the buffer uses. Call it once.
func (b *buffer) free() {
	b.space.memory.Add(-b.taken)
	if b.inFile > 0 {
		b.files.Release(b.inFile)
	}
	if b.file != nil {
		b.file.Close()
	}
}

// followed is a body whose beginning was buffered.
type followed struct {
	io.Reader
	io.Closer
}

// atEnd is a reader of nothing, which calls a function.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}
