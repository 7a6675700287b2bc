package sim

import (
	"bytes"
	"io"
	"unsafe"
)

// A block is a part of an input: whole lines, or the start of one line that is too long.
type block struct {
	text    string
	tooLong bool
}

// blockReader splits an input into blocks of whole lines.
type blockReader struct {
	src     io.Reader
	longest int
	carry   []byte // the start of a line whose end was not read yet
	skip    bool   // the rest of a line that is too long is being dropped
	err     error  // of the last read
}

const blockSize = 64 << 10

// next returns the next block. Its memory is used for nothing else, so that strings of it may be kept.
func (r *blockReader) next() (block, error) {
	for r.err == nil {
		buf := make([]byte, len(r.carry)+blockSize)
		copy(buf, r.carry)
		buf = buf[:len(r.carry)+r.fill(buf[len(r.carry):])]
		r.carry = nil
		if r.skip {
			end := bytes.IndexByte(buf, '\n')
			if end < 0 {
				continue
			}
			r.skip, buf = false, buf[end+1:]
		}
		end := bytes.LastIndexByte(buf, '\n')
		r.carry = buf[end+1:]
		// one more for a carriage return
		if end < 0 && len(r.carry) > r.longest+1 && r.err == nil {
			r.skip, r.carry = true, nil
			return block{text: asText(buf[:r.longest]), tooLong: true}, nil
		}
		if end >= 0 {
			return block{text: asText(buf[:end+1])}, nil
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
