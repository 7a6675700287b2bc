package weirredis

import (
	"encoding/binary"
	"errors"
	"math"
)

// What goes to and from the scripts is MessagePack, as Redis reads and writes it in C: whole
// numbers, byte strings and arrays are all that is needed of it.
// (https://github.com/msgpack/msgpack/blob/master/spec.md)

// appendInt adds a whole number.
func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0 && v < 128:
		return append(b, byte(v))
	case v < 0 && v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt16 && v <= math.MaxInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32 && v <= math.MaxInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

// appendString adds a byte string.
func appendString(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n < 1<<8:
		b = append(b, 0xd9, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

// appendArray begins an array of n elements.
func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

// errAnswer is for a reply that is not one of these scripts'.
var errAnswer = errors.New("weirredis: the reply is not from these scripts")

// A reader reads values one after another. After a value that is missing, or of another type, all
// are zero, and err is set.
type reader struct {
	b   string
	err error
}

func (r *reader) fail() {
	r.b, r.err = "", errAnswer
}

// take is the next n bytes.
func (r *reader) take(n int) string {
	if n < 0 || n > len(r.b) {
		r.fail()
		return ""
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

// sized is a big-endian number of so many bytes.
func (r *reader) sized(n int) (v uint64) {
	for _, c := range []byte(r.take(n)) {
		v = v<<8 | uint64(c)
	}
	return v
}

// array begins an array, and returns how many elements it has.
func (r *reader) array() int {
	switch c := r.byte(); {
	case c&0xf0 == 0x90:
		return int(c & 0x0f)
	case c == 0xdc:
		return int(r.sized(2))
	case c == 0xdd:
		return int(r.sized(4))
	}
	r.fail()
	return 0
}

func (r *reader) byte() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0xc1 // which no value begins with
}

// text reports whether a byte string is next.
func (r *reader) text() bool {
	if r.b == "" {
		return false
	}
	c := r.b[0]
	return c&0xe0 == 0xa0 || c >= 0xd9 && c <= 0xdb
}

func (r *reader) string() string {
	switch c := r.byte(); {
	case c&0xe0 == 0xa0:
		return r.take(int(c & 0x1f))
	case c == 0xd9:
		return r.take(int(r.sized(1)))
	case c == 0xda:
		return r.take(int(r.sized(2)))
	case c == 0xdb:
		return r.take(int(r.sized(4)))
	}
	r.fail()
	return ""
}

func (r *reader) int() int64 {
	switch c := r.byte(); {
	case c < 128:
		return int64(c)
	case c >= 0xe0:
		return int64(int8(c))
	case c == 0xcc:
		return int64(r.sized(1))
	case c == 0xcd:
		return int64(r.sized(2))
	case c == 0xce:
		return int64(r.sized(4))
	case c == 0xcf:
		if v := r.sized(8); v <= math.MaxInt64 {
			return int64(v)
		}
	case c == 0xd0:
		return int64(int8(r.sized(1)))
	case c == 0xd1:
		return int64(int16(r.sized(2)))
	case c == 0xd2:
		return int64(int32(r.sized(4)))
	case c == 0xd3:
		return int64(r.sized(8))
	}
	r.fail()
	return 0
}
