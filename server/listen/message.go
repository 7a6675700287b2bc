package listen

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// ErrUnclear is the error for an ambiguous request: two servers could read it as different requests
// (request smuggling).
var ErrUnclear = errors.New("listen: the request can be read in more than one way")

// framing says where a request ends.
type framing struct {
	length  int64 // of the body; 0 is none
	chunked bool
	upgrade bool // bytes of another protocol may follow
	http2   bool // it is the preface of HTTP/2
}

// checkHeader reads the header of a request, including its empty line. It refuses whatever another
// server could read in another way: Content-Length beside Transfer-Encoding, either of them twice,
// misplaced spaces, folded lines, lines that do not end in CRLF. net/http reads what remains in the
// same way, and checks the rest.
func checkHeader(b []byte) (f framing, err error) {
	for bytes.HasPrefix(b, []byte("\r\n")) { // some clients end a body with it
		b = b[2:]
	}
	line, b, ok := httpsyntax.CutLine(b)
	if !ok {
		return f, ErrUnclear
	}
	if string(line) == "PRI * HTTP/2.0" {
		return framing{http2: true}, nil
	}
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, found := bytes.Cut(rest, []byte(" "))
	if !found || !httpsyntax.IsToken(method) || !httpsyntax.IsTarget(target) || bytes.IndexByte(version, ' ') >= 0 {
		return f, ErrUnclear
	}
	old := false
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		old = true
	default:
		return f, ErrUnclear
	}
	h := fields{length: -1}
	for {
		if line, b, ok = httpsyntax.CutLine(b); !ok {
			return f, ErrUnclear
		}
		if len(line) == 0 {
			break
		}
		if err := h.add(line); err != nil {
			return f, err
		}
	}
	if h.hosts != 1 && (!old || h.hosts > 1) {
		return f, ErrUnclear
	}
	if h.codings > 0 && (old || h.length >= 0) {
		return f, ErrUnclear
	}
	if target[0] != '/' && !rightForm(string(method), string(target), string(h.host)) {
		return f, ErrUnclear
	}
	return framing{length: max(h.length, 0), chunked: h.codings > 0, upgrade: h.upgrade}, nil
}

// fields are the header fields about framing.
type fields struct {
	length  int64 // -1 for none
	codings int
	hosts   int
	host    []byte
	upgrade bool
}

func (f *fields) add(line []byte) error {
	name, value, found := bytes.Cut(line, []byte(":"))
	// this includes folded lines, and a space before the colon
	if !found || !httpsyntax.IsToken(name) {
		return ErrUnclear
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return ErrUnclear
		}
	}
	switch {
	case is(name, "Content-Length"):
		value := bytes.Trim(value, " \t")
		if f.length >= 0 || len(value) == 0 || len(value) > 18 {
			return ErrUnclear
		}
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil {
			return ErrUnclear
		}
		f.length = int64(n)
	case is(name, "Transfer-Encoding"):
		if f.codings++; f.codings > 1 || !is(bytes.Trim(value, " "), "chunked") {
			return ErrUnclear
		}
	case is(name, "Host"):
		f.hosts++
		f.host = bytes.Trim(value, " \t")
	case is(name, "Upgrade"):
		f.upgrade = true
	}
	return nil
}

func is(name []byte, want string) bool {
	return len(name) == len(want) && strings.EqualFold(string(name), want)
}

// rightForm reports whether a target that does not start with a slash has the form of its method,
// and names the same host as Host.
func rightForm(method, target, host string) bool {
	switch {
	case method == "CONNECT":
		return true // refused later
	case target == "*":
		return method == "OPTIONS"
	}
	scheme, rest, found := strings.Cut(target, "://")
	if !found || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return false
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	return authority != "" && strings.EqualFold(authority, host)
}

// chunks follows a chunked body. The zero value is at its beginning.
type chunks struct {
	part  part
	left  int64 // bytes of the chunk
	size  int   // digits, or bytes of an extension or of trailers, so far
	empty bool  // the line of trailers that is read has nothing in it yet
	named bool  // it has its colon
}

type part uint8

const (
	inSize part = iota
	inExtension
	sizeCR // a CR was read, and an LF is due
	inData
	dataCR
	dataLF
	inTrailer
	trailerCR
)

const (
	longestExtension = 256
	longestTrailers  = 4 << 10
)

// follow reads on, and returns how many bytes belong to the body, and whether it has ended with
// them.
func (c *chunks) follow(b []byte) (n int, ended bool, err error) {
	for n < len(b) {
		if c.part == inData {
			step := min(c.left, int64(len(b)-n))
			n += int(step)
			if c.left -= step; c.left == 0 {
				c.part = dataCR
			}
			continue
		}
		ended, err := c.next(b[n])
		n++
		if ended || err != nil {
			return n, ended, err
		}
	}
	return n, false, nil
}

func (c *chunks) next(b byte) (ended bool, err error) {
	switch c.part {
	case inSize:
		if digit, ok := hexDigit(b); ok && c.size < 15 {
			c.left, c.size = c.left<<4|int64(digit), c.size+1
			return false, nil
		}
		switch {
		case c.size == 0:
			return false, ErrUnclear
		case b == '\r':
			c.part = sizeCR
		case b == ';':
			c.part, c.size = inExtension, 0
		default:
			return false, ErrUnclear
		}
	case inExtension:
		c.size++
		switch {
		case b == '\r':
			c.part = sizeCR
		case c.size > longestExtension || b < ' ' || b >= 0x7f:
			return false, ErrUnclear
		}
	case sizeCR:
		if b != '\n' {
			return false, ErrUnclear
		}
		c.part, c.size = inData, 0
		if c.left == 0 {
			c.part, c.empty, c.named = inTrailer, true, false
		}
	case dataCR:
		if b != '\r' {
			return false, ErrUnclear
		}
		c.part = dataLF
	case dataLF:
		if b != '\n' {
			return false, ErrUnclear
		}
		c.part = inSize
	case inTrailer:
		c.size++
		switch {
		case c.size > longestTrailers:
			return false, ErrUnclear
		case b == '\r' && (c.empty || c.named):
			c.part = trailerCR
			return false, nil
		case b == ':' && !c.empty:
			c.named = true
		case !c.named && !httpsyntax.IsTokenByte(b) || b < ' ' && b != '\t' || b == 0x7f:
			return false, ErrUnclear
		}
		c.empty = false
	case trailerCR:
		if b != '\n' {
			return false, ErrUnclear
		}
		if c.empty {
			return true, nil
		}
		c.part, c.empty, c.named = inTrailer, true, false
	}
	return false, nil
}

func hexDigit(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
