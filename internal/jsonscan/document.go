package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Document reads a document that is whole: like Reset, Scan and Reset, but some times as fast for an
// object as the APIs send it. It reports nothing before it has seen that the document is such an
// object, and leaves all others to Scan, so the Sink gets the same.
func (s *Scanner) Document(p []byte) {
	s.Reset()
	if w := (whole{p: p}); s.strict == nil && w.read(s.tree.root) {
		for _, v := range w.found[:w.n] {
			s.sink.Value(v.slot, v.kind, p[v.from:v.to])
		}
		s.sink.Doc()
		return
	}
	s.Scan(p)
	s.Reset()
}

// whole reads a document that is an object. It takes what the states of a Scanner take.
type whole struct {
	p     []byte
	n     int
	found [16]struct {
		slot     int
		kind     Kind
		from, to int
	}
}

// read reports whether the text is an object, and notes the wanted values in it.
func (w *whole) read(root *node) bool {
	i := w.blank(0)
	if i == len(w.p) || w.p[i] != '{' || root.slot >= 0 {
		return false
	}
	i = w.object(i+1, root)
	return i > 0 && w.blank(i) == len(w.p)
}

// The functions below return the position behind what they read, and -1 if they do not take it.

// object reads an object from behind its brace on. A path leads to n, whose depth is bounded.
func (w *whole) object(i int, n *node) int {
	for {
		if i = w.blank(i); i == len(w.p) {
			return -1
		} else if w.p[i] == '}' {
			return i + 1
		} else if w.p[i] != '"' {
			return -1
		}
		name := i + 1
		if i = w.text(name); i < 0 {
			return -1
		}
		to := n.child(w.p[name : i-1])
		if i = w.blank(i); i == len(w.p) || w.p[i] != ':' {
			return -1
		}
		if i = w.blank(i + 1); i == len(w.p) {
			return -1
		}
		switch {
		case to == nil:
			i = w.pass(i)
		case to.slot >= 0:
			i = w.value(i, to.slot)
		case w.p[i] == '{':
			i = w.object(i+1, to)
		default:
			i = w.pass(i)
		}
		if i < 0 {
			return -1
		}
		if i = w.blank(i); i == len(w.p) {
			return -1
		} else if w.p[i] == '}' {
			return i + 1
		} else if w.p[i] != ',' {
			return -1
		}
		i++
	}
}

// value notes a wanted value. It takes no object or array.
func (w *whole) value(i, slot int) int {
	if w.n == len(w.found) {
		return -1
	}
	v := &w.found[w.n]
	w.n++
	v.slot, v.kind, v.from = slot, Scalar, i
	if w.p[i] == '"' {
		if i = w.text(i + 1); i > 0 {
			v.kind, v.from, v.to = String, v.from+1, i-1
		}
		return i
	}
	if i = w.scalar(i); i-v.from > maxText {
		return -1
	}
	v.to = i
	return i
}

// deepestPassed is how deeply nested a value may be that pass takes.
const deepestPassed = 64

// pass reads a value in which nothing is wanted.
func (w *whole) pass(i int) int {
	var objects uint64 // by depth, the innermost last: whether it is an object
	for depth := 0; ; {
		// A value is expected, or the end of an array.
		if i = w.blank(i); i == len(w.p) {
			return -1
		}
		switch c := w.p[i]; {
		case c == '"':
			i = w.text(i + 1)
		case c == '[' && depth < deepestPassed:
			objects, depth, i = objects<<1, depth+1, i+1
			continue
		case c == '{' && depth < deepestPassed:
			objects, depth = objects<<1|1, depth+1
			if i = w.name(i + 1); i > 0 && w.p[i-1] == ':' {
				continue
			} else if i > 0 {
				i-- // its end
			}
		case c == ']' && depth > 0 && objects&1 == 0:
		default:
			i = w.scalar(i)
		}
		// A value has ended, or an object or array is to be closed.
		for {
			if i < 0 {
				return -1
			} else if depth == 0 {
				return i
			} else if i = w.blank(i); i == len(w.p) {
				return -1
			}
			switch c := w.p[i]; {
			case c == ',' && objects&1 == 0:
				i++
			case c == ',':
				if i = w.name(i + 1); i > 0 && w.p[i-1] != ':' {
					i-- // its end
					continue
				} else if i < 0 {
					return -1
				}
			case c == '}' && objects&1 == 1, c == ']' && objects&1 == 0:
				objects, depth, i = objects>>1, depth-1, i+1
				continue
			default:
				return -1
			}
			break
		}
	}
}

// name reads the name of a member and the colon behind it, or the brace that ends the object.
func (w *whole) name(i int) int {
	if i = w.blank(i); i == len(w.p) {
		return -1
	} else if w.p[i] == '}' {
		return i + 1
	} else if w.p[i] != '"' {
		return -1
	}
	if i = w.text(i + 1); i < 0 {
		return -1
	}
	if i = w.blank(i); i == len(w.p) || w.p[i] != ':' {
		return -1
	}
	return i + 1
}

// text reads a name or a string from behind its first quote on.
func (w *whole) text(i int) int {
	for from := i; ; {
		if i = quote(w.p, i); i < 0 {
			return -1
		}
		if i++; w.p[i-2] != '\\' || !oddBackslashes(w.p[from:i-1], false) {
			return i
		}
	}
}

// quote returns the position of the first quote at i or later. Most texts are short: a call of
// bytes.IndexByte takes longer than looking at eight bytes at a time.
func quote(p []byte, i int) int {
	for near := i + 32; i < near && i+8 <= len(p); i += 8 {
		const ones, quotes = 0x0101010101010101, '"' * 0x0101010101010101
		v := binary.LittleEndian.Uint64(p[i:]) ^ quotes
		if v = (v - ones) &^ v & (ones << 7); v != 0 {
			return i + bits.TrailingZeros64(v)/8
		}
	}
	if k := bytes.IndexByte(p[i:], '"'); k >= 0 {
		return i + k
	}
	return -1
}

// scalar reads a number or a literal.
func (w *whole) scalar(i int) int {
	if c := w.p[i]; !inScalarText[c] || c == '.' || c == '+' {
		return -1
	}
	for i++; i < len(w.p) && inScalarText[w.p[i]]; i++ {
	}
	return i
}

// blank passes over blanks.
func (w *whole) blank(i int) int {
	for i < len(w.p) && isBlank(w.p[i]) {
		i++
	}
	return i
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// inScalarText is the characters of numbers and literals.
var inScalarText = func() (in [256]bool) {
	for c := range in {
		in[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '-' || c == '+'
	}
	return in
}()
