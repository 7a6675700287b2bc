package wire

import (
	"math"
	"strconv"
	"strings"
)

// A Reply builds replies to be written. Its zero value builds RESP2.
type Reply struct {
	Bytes  []byte
	Three  bool // RESP3
	Errors int  // how many errors were written
}

func (r *Reply) head(kind byte, n int64) {
	r.Bytes = append(r.Bytes, kind)
	r.Bytes = strconv.AppendInt(r.Bytes, n, 10)
	r.Bytes = append(r.Bytes, '\r', '\n')
}

// Int writes an integer.
func (r *Reply) Int(n int64) { r.head(':', n) }

// Array begins an array of n elements.
func (r *Reply) Array(n int) { r.head('*', int64(n)) }

// Map begins a map of n keys, each before its value. In RESP2 it is an array.
func (r *Reply) Map(n int) {
	if r.Three {
		r.head('%', int64(n))
		return
	}
	r.head('*', int64(2*n))
}

// Set begins a set of n elements. In RESP2 it is an array.
func (r *Reply) Set(n int) {
	if r.Three {
		r.head('~', int64(n))
		return
	}
	r.Array(n)
}

// Simple writes a short text without line ends.
func (r *Reply) Simple(text string) {
	r.Bytes = append(r.Bytes, '+')
	r.Bytes = append(r.Bytes, text...)
	r.Bytes = append(r.Bytes, '\r', '\n')
}

// Error writes an error: a code in capitals, and a message. Line ends in it become spaces.
func (r *Reply) Error(text string) {
	if strings.ContainsAny(text, "\r\n") {
		text = strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
	}
	r.Errors++
	r.Bytes = append(r.Bytes, '-')
	r.Bytes = append(r.Bytes, text...)
	r.Bytes = append(r.Bytes, '\r', '\n')
}

// Text writes a text of any bytes.
func (r *Reply) Text(text string) {
	r.head('$', int64(len(text)))
	r.Bytes = append(r.Bytes, text...)
	r.Bytes = append(r.Bytes, '\r', '\n')
}

// Bulk is Text for bytes.
func (r *Reply) Bulk(text []byte) {
	r.head('$', int64(len(text)))
	r.Bytes = append(r.Bytes, text...)
	r.Bytes = append(r.Bytes, '\r', '\n')
}

// Verbatim writes a text for people. In RESP2 it is a text.
func (r *Reply) Verbatim(text string) {
	if !r.Three {
		r.Text(text)
		return
	}
	r.head('=', int64(len(text))+4)
	r.Bytes = append(r.Bytes, "txt:"...)
	r.Bytes = append(r.Bytes, text...)
	r.Bytes = append(r.Bytes, '\r', '\n')
}

// Null writes that there is no value.
func (r *Reply) Null() {
	if r.Three {
		r.Bytes = append(r.Bytes, "_\r\n"...)
		return
	}
	r.Bytes = append(r.Bytes, "$-1\r\n"...)
}

// NullArray writes that there is no array.
func (r *Reply) NullArray() {
	if r.Three {
		r.Null()
		return
	}
	r.Bytes = append(r.Bytes, "*-1\r\n"...)
}

// ParseInt parses a number: digits, which a sign may precede, and nothing else.
func ParseInt(text []byte) (n int64, ok bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative || len(text) > 0 && text[0] == '+' {
		text = text[1:]
	}
	if len(text) == 0 {
		return 0, false
	}
	var u uint64
	for _, c := range text {
		if c < '0' || c > '9' || u > math.MaxInt64/10 {
			return 0, false
		}
		u = 10*u + uint64(c-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}
