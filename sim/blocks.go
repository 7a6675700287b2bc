package sim

import (
	"bytes"
	"io"
	"sync"
	"unsafe"
)

// A block is a part of an input: whole lines, or the start of one line that is too long.
type block struct {
	text    string
	tooLong bool
	buf     []byte // the memory of the text; nil if it is not the whole
}

// blockReader splits an input into blocks of whole lines.
type blockReader struct {
	src     io.Reader
	longest int
	memory  *memory
	carry   []byte // the start of a line whose end was not read yet
	skip    bool   // the rest of a line that is too long is being dropped
	err     error  // of the last read
}

const (
	blockSize = 64 << 10
	lineRoom  = 4 << 10 // for the start of a line from the block before
)

// memory is that of blocks, to be used again.
type memory struct {
	spare  sync.Pool // of *[]byte
	poison bool      // for tests: overwrite what is given back
}

// get returns memory for n bytes.
func (m *memory) get(n int) []byte {
	if buf, ok := m.spare.Get().(*[]byte); ok && cap(*buf) >= n {
		return (*buf)[:n]
	}
	return make([]byte, n, max(n, blockSize+lineRoom))
}

// put gives memory back. No text of it may be used any more.
func (m *memory) put(buf []byte) {
	if m.poison {
		for i := range buf {
			buf[i] = '!'
		}
	}
	if cap(buf) <= blockSize+lineRoom {
		m.spare.Put(&buf)
	}
}

// next returns the next block.
func (r *blockReader) next() (block, error) {
	for r.err == nil {
		buf := r.memory.get(len(r.carry) + blockSize)
		copy(buf, r.carry)
		buf = buf[:len(r.carry)+r.fill(buf[len(r.carry):])]
		if r.skip {
			end := bytes.IndexByte(buf, '\n')
			if end < 0 {
				r.carry = r.carry[:0]
				continue
			}
			r.skip, buf = false, buf[end+1:]
		}
		end := bytes.LastIndexByte(buf, '\n')
		r.carry = append(r.carry[:0], buf[end+1:]...) // a copy: the block's memory may be used again before the next block is read
		// one more for a carriage return
		if end < 0 && len(r.carry) > r.longest+1 && r.err == nil {
			r.skip, r.carry = true, r.carry[:0]
			return block{text: asText(buf[:r.longest]), tooLong: true}, nil
		}
		if end >= 0 {
			return block{text: asText(buf[:end+1]), buf: buf}, nil
		}
	}
	if r.err == io.EOF && len(r.carry) > 0 { // the last line, without a line end
		text := asText(r.carry)
		r.carry = nil
		return block{text: text}, nil
	}
	return block{}, r.err
}

// fill reads until a buffer is full or the input ends. io.ReadFull would report a file that was cut off as
// one that ended.
func (r *blockReader) fill(buf []byte) (n int) {
	for empty := 0; n < len(buf) && r.err == nil; {
		var more int
		more, r.err = r.src.Read(buf[n:])
		if n += more; more > 0 {
			empty = 0
		} else if empty++; empty == 100 && r.err == nil {
			r.err = io.ErrNoProgress
		}
	}
	return n
}

// asText returns bytes that nobody changes any more as a string, without a copy.
func asText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
