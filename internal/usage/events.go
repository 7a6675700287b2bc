package usage

import (
	"bytes"

	"github.com/weirflow/weir/internal/jsonscan"
)

// events reads a stream of server-sent events, and hands the data of each event to a scanner. Lines
// may end in LF, CR or CRLF.
type events struct {
	scan *jsonscan.Scanner
	rare []byte  // data without this text has no wanted field; nil: unknown
	of   *Reader // told of the end of each event with data
	done bool    // the event [DONE] has come, which ends the streams of OpenAI and others

	state eventState
	began bool    // the byte order mark has been looked for
	cr    bool    // the last character was a CR: an LF that follows belongs to it
	name  [5]byte // the name of the line's field, as far as it has come
	n     int     // the length of the name, up to one above len(name)
	lines int     // lines of data in the event
	head  [7]byte // the beginning of the event's data
	size  int     // how much of the event's data has come, up to len(head)
}

type eventState uint8

const (
	lineStart eventState = iota
	inFieldName
	afterColon
	inData
	inOther
)

const doneMark = "[DONE]"

// bom is the byte order mark, which may begin a stream.
const bom = "\xef\xbb\xbf"

// write reads the next piece.
func (e *events) write(p []byte) {
	eol := lineEnds{p: p}
	for i := 0; i < len(p); {
		if e.cr {
			if e.cr = false; p[i] == '\n' {
				i++
				continue
			}
		}
		switch e.state {
		case lineStart:
			if next := e.wholeEvent(i, &eol); next > i {
				i = next
				continue
			}
			i += e.startLine(p[i])
		case inFieldName:
			i += e.fieldName(p[i])
		case afterColon:
			if e.state = inData; p[i] == ' ' {
				i++
			}
		default:
			end := eol.after(i)
			if e.state == inData {
				e.data(p[i:end])
			}
			if i = end; i < len(p) {
				e.endLine(p[i])
				i++
			}
		}
	}
}

// wholeEvent reads an event that begins at i, has one line of data, its last, and ends within p, as
// nearly all do. It returns the position behind the event; i if the event is another one.
func (e *events) wholeEvent(i int, eol *lineEnds) int {
	if e.lines > 0 || !e.began {
		return i
	}
	p, before, at := eol.p, *eol, i
	for at < len(p) && p[at] != 'd' { // other fields, like event, and comments
		if at = afterLine(p, eol.after(at)); at < 0 || at == len(p) || p[at] == '\n' || p[at] == '\r' {
			*eol = before
			return i
		}
	}
	if !bytes.HasPrefix(p[at:], []byte("data:")) {
		*eol = before
		return i
	}
	end := eol.after(at)
	next := afterLine(p, end)
	if next >= 0 {
		next = afterLine(p, next)
	}
	if next < 0 {
		*eol = before
		return i
	}
	data := bytes.TrimPrefix(p[at+len("data:"):end], []byte{' '})
	switch {
	case string(data) == doneMark:
		e.done = true
	case e.rare != nil && !bytes.Contains(data, e.rare):
	default:
		e.scan.Document(data)
	}
	e.of.endEvent()
	return next
}

// afterLine returns the position behind the end of a line at i; -1 if there is none, or it may be
// incomplete: a CR at the end of a piece may be half of a CRLF.
func afterLine(p []byte, i int) int {
	switch {
	case i < len(p) && p[i] == '\n':
		return i + 1
	case i+1 < len(p) && p[i] == '\r' && p[i+1] == '\n':
		return i + 2
	}
	return -1
}

// startLine reads the first character of a line.
func (e *events) startLine(c byte) int {
	if !e.began {
		if e.n < len(bom) && c == bom[e.n] {
			e.name[e.n] = c
			e.n++
			if e.n == len(bom) {
				e.began, e.n = true, 0
			}
			return 1
		}
		e.began = true
		if e.n > 0 { // the beginning of a mark, and then something else: no field has such a name
			e.n, e.state = 0, inOther
			return 0
		}
	}
	if c == '\n' || c == '\r' {
		e.endEvent()
		e.cr = c == '\r'
		return 1
	}
	e.state, e.n = inFieldName, 0
	return 0
}

// fieldName reads a character of the name of a field.
func (e *events) fieldName(c byte) int {
	isData := e.n == 4 && string(e.name[:4]) == "data"
	switch {
	case c == ':' && isData:
		e.beginData()
		e.state = afterColon
	case c == '\n' || c == '\r':
		if isData {
			e.beginData()
		}
		e.endLine(c)
	case c == ':' || e.n == len(e.name):
		e.state = inOther
	default:
		e.name[e.n] = c
		e.n++
	}
	return 1
}

// beginData begins a line of data. Lines of one event are joined by line feeds.
func (e *events) beginData() {
	if e.lines == 0 {
		e.scan.Reset()
		e.size = 0
	} else {
		e.data([]byte{'\n'})
	}
	e.lines++
}

// data reads a part of the data.
func (e *events) data(p []byte) {
	e.size += copy(e.head[e.size:], p)
	e.scan.Scan(p)
}

// endLine ends a line with the character at its end.
func (e *events) endLine(c byte) {
	e.state, e.n, e.cr = lineStart, 0, c == '\r'
}

// endEvent is called at an empty line.
func (e *events) endEvent() {
	if e.lines == 0 {
		return
	}
	e.close()
	e.scan.Reset()
	e.lines = 0
	e.of.endEvent()
}

// close looks at an event that has come without the empty line behind it.
func (e *events) close() {
	if e.lines > 0 && string(e.head[:e.size]) == doneMark {
		e.done = true
	}
}

// lineEnds finds the ends of lines in a piece. It looks at each byte once for LF and once for CR,
// however many lines there are.
type lineEnds struct {
	p      []byte
	lf, cr int // the next ones that were found; len(p) for none
	looked bool
}

// after returns the position of the first LF or CR at i or later; len(p) for none.
func (l *lineEnds) after(i int) int {
	if !l.looked || l.lf < i {
		l.lf = l.find('\n', i)
	}
	if !l.looked || l.cr < i {
		l.cr = l.find('\r', i)
	}
	l.looked = true
	return min(l.lf, l.cr)
}

func (l *lineEnds) find(c byte, i int) int {
	if k := bytes.IndexByte(l.p[i:], c); k >= 0 {
		return i + k
	}
	return len(l.p)
}
