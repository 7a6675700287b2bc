package policy

import (
	"io"
	"net/http"
	"sync"
)

// Bounds of the parts in which memory for a body is taken.
const (
	minKept = 2 << 10
	maxKept = 32 << 10
)

// keptBody is a body whose beginning has been read.
type keptBody struct {
	memory BodyMemory // nil for no bound
	rest   io.ReadCloser

	mu    sync.Mutex
	parts [][]byte
	at    int   // what has been read of the first part
	size  int64 // of what was kept
	taken int64 // of memory
	ended bool
}

// fill keeps the beginning of a body, of up to most bytes. whole reports whether that is all of it.
func (k *keptBody) fill(most int64) (whole bool, err error) {
	for k.size < most {
		last := len(k.parts) - 1
		if last < 0 || len(k.parts[last]) == cap(k.parts[last]) {
			n := min(max(minKept, k.size), maxKept, most-k.size)
			if k.memory != nil && !k.memory.Reserve(n) {
				return false, ErrBodyMemory
			}
			k.taken += n
			k.parts = append(k.parts, make([]byte, 0, n))
			last++
		}
		part := k.parts[last]
		n, err := k.rest.Read(part[len(part):cap(part)])
		k.parts[last] = part[:len(part)+n]
		k.size += int64(n)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// Read reads what was kept, whose memory is released, and then the rest.
func (k *keptBody) Read(p []byte) (int, error) {
	if n, err := k.readKept(p); n > 0 || err != nil || len(p) == 0 {
		return n, err
	}
	return k.rest.Read(p)
}

// readKept reads what was kept. It returns 0 if nothing of it is left.
func (k *keptBody) readKept(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return 0, http.ErrBodyReadAfterClose
	}
	for len(k.parts) > 0 {
		first := k.parts[0]
		n := copy(p, first[k.at:])
		if k.at += n; k.at == len(first) {
			k.parts[0], k.parts, k.at = nil, k.parts[1:], 0
			k.release(int64(cap(first)))
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
	}
	return 0, nil
}

// Close closes the body.
func (k *keptBody) Close() error { return k.rest.Close() }

// free releases what is left. A transport may still have the body, and reads no more of it.
func (k *keptBody) free() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended, k.parts = true, nil
	k.release(k.taken)
}

func (k *keptBody) release(n int64) {
	k.taken -= n
	if k.memory != nil && n > 0 {
		k.memory.Release(n)
	}
}
