// Package packed reads and writes short binary texts: numbers of variable length, and bytes after their
// length. A Reader accepts any input: what is not there or out of bounds is an error, and never a panic.
package packed

import (
	"encoding/binary"
	"errors"

	"github.com/weirflow/weir/internal/u128"
)

// ErrMalformed is the error of a Reader.
var ErrMalformed = errors.New("malformed or cut off")

// Uint appends a number.
func Uint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// Int appends a number that may be below 0: those near 0 take least, and the lowest takes one byte, as rules
// mark with it what is not there.
func Int(b []byte, v int64) []byte { return Uint(b, uint64(v)<<1^uint64(v>>63)+1) }

// Wide appends a number of 128 bits.
func Wide(b []byte, v u128.Uint) []byte { return Uint(Uint(b, v.Hi), v.Lo) }

// Bool appends true or false.
func Bool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Bytes appends bytes after their length.
func Bytes[T ~string | ~[]byte](b []byte, v T) []byte { return append(Uint(b, uint64(len(v))), v...) }

// Ints appends numbers after how many there are.
func Ints(b []byte, all []int64) []byte {
	b = Uint(b, uint64(len(all)))
	for _, v := range all {
		b = Int(b, v)
	}
	return b
}

// A Reader reads what the functions of this package have written. After an error, it returns zeros.
type Reader struct {
	rest []byte
	bad  bool
}

// NewReader returns a Reader of b, which it does not change.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Fail makes Err report that what was read means nothing.
func (r *Reader) Fail() { r.rest, r.bad = nil, true }

// Err returns ErrMalformed if anything was missing or out of bounds.
func (r *Reader) Err() error {
	if r.bad {
		return ErrMalformed
	}
	return nil
}

// End is Err, and also an error if something is left.
func (r *Reader) End() error {
	if len(r.rest) > 0 {
		r.Fail()
	}
	return r.Err()
}

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	return v * r.took(n)
}

// Int reads a number that may be below 0.
func (r *Reader) Int() int64 {
	v := r.Uint()
	if r.bad {
		return 0
	}
	v--
	return int64(v>>1) ^ -int64(v&1)
}

// took moves on by n bytes. It returns 0 if they are not there, and otherwise 1.
func (r *Reader) took(n int) uint64 {
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[n:]
	return 1
}

// Wide reads a number of 128 bits.
func (r *Reader) Wide() u128.Uint {
	hi := r.Uint()
	return u128.Uint{Hi: hi, Lo: r.Uint()}
}

// Bool reads true or false.
func (r *Reader) Bool() bool {
	v := r.Uint()
	if v > 1 {
		r.Fail()
	}
	return v == 1
}

// Count reads how many of something follow, at most most. Each takes at least a byte, so a count beyond
// what is left is an error, and reserves no memory.
func (r *Reader) Count(most int) int {
	n := r.Uint()
	if n > uint64(most) || n > uint64(len(r.rest)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Bytes reads bytes. They are a part of the Reader's.
func (r *Reader) Bytes() []byte {
	n := r.Count(len(r.rest))
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// Ints reads numbers, at most most.
func (r *Reader) Ints(most int) []int64 {
	n := r.Count(most)
	if n == 0 {
		return nil
	}
	all := make([]int64, n)
	for i := range all {
		all[i] = r.Int()
	}
	return all
}
