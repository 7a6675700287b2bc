package jsonscan

// A Sink gets the values of wanted fields. The text is valid only during the call: a number or a
// literal as it was written, or the inside of a string with its escapes.
type Sink interface {
	Value(slot int, kind Kind, text []byte)
	// Doc is called when a document has ended: a value at the top, or an element of an array at the
	// top, since APIs stream in both ways.
	Doc()
}

// Kind is what a value is.
type Kind uint8

// The kinds of values.
const (
	Scalar    Kind = iota // a number, true, false or null
	String                // a string
	Composite             // an object or an array, which has no text
)

// maxDepth is the deepest nesting that is followed.
const maxDepth = 1024

// maxText is how much of a name or a value is kept if it comes in pieces. A longer one is not what
// is wanted.
const maxText = 256

// state is what a Scanner expects next.
type state uint8

const (
	atValue state = iota
	atName
	inName
	atColon
	inString
	inScalar
	afterValue
	broken
)

// A Scanner follows the fields of a Tree through a sequence of documents. It takes names as they are
// written: a name with an escape is not a wanted one. The last of several values counts, as its Sink
// gets them in order. It is lenient about the insides of strings and numbers that are not wanted.
//
// A Scanner is not safe for concurrent use.
type Scanner struct {
	tree *Tree
	sink Sink

	state   state
	depth   int
	matched int // the depth of the innermost object that a path leads to; 0 for none
	path    [maxSteps + 2]*node
	objects [maxDepth / 64]uint64 // by depth: whether it is an object

	next *node // where the current name leads; nil for nowhere

	odd  bool   // the piece before ended within a string after an odd number of backslashes
	text []byte // the beginning of a name or a value that came in pieces
	long bool   // it was longer than maxText

	strict *strict // how a request is read; nil for responses
}

// NewScanner returns a Scanner that reports to sink.
func NewScanner(t *Tree, sink Sink) *Scanner {
	return &Scanner{tree: t, sink: sink}
}

// Reset begins a new document, whatever came before.
func (s *Scanner) Reset() {
	if s.matched > 0 {
		clear(s.path[:])
	}
	s.state, s.depth, s.matched, s.next = atValue, 0, 0, nil
	s.forget()
}

// Broken reports whether the text was no JSON. What follows is ignored until Reset.
func (s *Scanner) Broken() bool { return s.state == broken }

// Idle reports whether no document has begun since the last one ended.
func (s *Scanner) Idle() bool { return s.state == atValue && s.depth == 0 }

// Scan reads the next piece.
func (s *Scanner) Scan(p []byte) {
	for i := 0; i < len(p); {
		switch s.state {
		case inString, inName:
			i += s.scanString(p[i:])
		case inScalar:
			i += s.scanScalar(p[i:])
		case broken:
			return
		default:
			if c := p[i]; !isBlank(c) {
				s.token(c)
				if s.state == inScalar {
					continue // the first character is part of it
				}
			}
			i++
		}
	}
}

// token takes a character between values.
func (s *Scanner) token(c byte) {
	switch s.state {
	case atValue:
		s.beginValue(c)
	case atName:
		switch c {
		case '"':
			s.state = inName
		case '}':
			s.close(true)
		default:
			s.state = broken
		}
	case atColon:
		if s.state = atValue; c != ':' {
			s.state = broken
		}
	case afterValue:
		switch {
		case c == ',' && s.isObject():
			s.state = atName
		case c == ',':
			s.state = atValue
		case c == '}' || c == ']':
			s.close(c == '}')
		default:
			s.state = broken
		}
	}
}

// beginValue takes the first character of a value.
func (s *Scanner) beginValue(c byte) {
	switch {
	case c == '"':
		s.state = inString
	case c == '{' || c == '[':
		s.open(c == '{')
	case c == ']' && s.depth > 0 && !s.isObject():
		s.close(false)
	case c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		s.state = inScalar
	default:
		s.state = broken
	}
}

// open begins an object or an array.
func (s *Scanner) open(object bool) {
	if s.depth == maxDepth-1 {
		s.state = broken
		return
	}
	to := s.next
	if s.atTop() {
		to = s.tree.root
	}
	if to != nil && to.slot >= 0 {
		s.sink.Value(to.slot, Composite, nil)
	}
	s.next = nil
	s.depth++
	bit := uint64(1) << (s.depth % 64)
	if s.state = atValue; !object {
		s.objects[s.depth/64] &^= bit
		return
	}
	s.state = atName
	s.objects[s.depth/64] |= bit
	if to != nil && len(to.children) > 0 {
		s.matched = s.depth
		s.path[s.depth] = to
	}
}

// atTop reports whether a value that begins now is a document.
func (s *Scanner) atTop() bool {
	return s.depth == 0 || s.depth == 1 && s.strict == nil && !s.isObject()
}

// isObject reports whether the innermost open value is an object.
func (s *Scanner) isObject() bool { return s.objects[s.depth/64]>>(s.depth%64)&1 == 1 }

// close ends an object or an array.
func (s *Scanner) close(object bool) {
	if s.depth == 0 || s.isObject() != object {
		s.state = broken
		return
	}
	if s.matched == s.depth {
		// The objects on the way to this one are those right above it: arrays interrupt a path.
		s.matched--
		if s.matched == 0 || s.path[s.matched] == nil {
			s.matched = 0
		}
		s.path[s.depth] = nil
	}
	s.depth--
	s.endValue()
}

// endValue is called behind each value.
func (s *Scanner) endValue() {
	s.next = nil
	switch {
	case s.depth == 0:
		s.state = atValue
		if s.strict != nil {
			s.strict.docs++
		}
		s.sink.Doc()
	case s.atTop():
		s.state = afterValue
		s.sink.Doc()
	default:
		s.state = afterValue
	}
}

// scanString reads within a string, and returns how many bytes it has read.
func (s *Scanner) scanString(p []byte) int {
	for from := 0; ; {
		end := quote(p, from)
		if end < 0 {
			s.odd = oddBackslashes(p[from:], s.odd && from == 0)
			s.keep(p)
			return len(p)
		}
		if escaped := oddBackslashes(p[from:end], s.odd && from == 0); escaped {
			from = end + 1
			continue
		}
		s.odd = false
		text := p[:end]
		if len(s.text) > 0 || s.long {
			s.keep(text)
			text = s.text
		}
		s.endString(text)
		return end + 1
	}
}

// oddBackslashes reports whether a text ends in an odd number of backslashes. before says whether
// the text before it did.
func oddBackslashes(p []byte, before bool) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	if n == len(p) && before {
		n++
	}
	return n%2 == 1
}

// keep keeps a piece of a name or a value that goes on in the next piece, if it may be wanted.
func (s *Scanner) keep(p []byte) {
	if s.state == inName && s.matched != s.depth || s.state != inName && (s.next == nil || s.next.slot < 0) {
		return
	}
	if s.strict == nil && len(s.text)+len(p) > maxText {
		s.long = true
		return
	}
	s.text = append(s.text, p...)
}

// forget ends a name or a value.
func (s *Scanner) forget() { s.text, s.long, s.odd = s.text[:0], false, false }

// endString ends a name or a string.
func (s *Scanner) endString(text []byte) {
	long := s.long
	if s.state == inName {
		s.state = atColon
		if s.next = nil; s.matched == s.depth && !long {
			s.next = s.find(s.path[s.depth], text)
		}
		s.forget()
		return
	}
	if s.next != nil && s.next.slot >= 0 {
		s.sink.Value(s.next.slot, String, text)
	}
	s.forget()
	s.endValue()
}

// find returns the node that a name leads to.
func (s *Scanner) find(n *node, name []byte) *node {
	if s.strict != nil {
		return s.strict.find(n, name)
	}
	return n.child(name)
}

// scanScalar reads within a number or a literal, and returns how many bytes it has read.
func (s *Scanner) scanScalar(p []byte) int {
	for i, c := range p {
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '-' || c == '+' {
			continue
		}
		s.keep(p[:i])
		if s.next != nil && s.next.slot >= 0 {
			if s.long {
				s.text = s.text[:0] // no number has so many digits: an empty text is none
			}
			s.sink.Value(s.next.slot, Scalar, s.text)
		}
		s.forget()
		s.endValue()
		return i
	}
	s.keep(p)
	return len(p)
}
