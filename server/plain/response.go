package plain

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// outSize is how much of an answer is kept before it is sent.
const outSize = 16 << 10

// gap is room before the first bytes of a body, for what can only be said when they are sent: how long it is, or that it comes in chunks.
const gap = 64

var outs = sync.Pool{New: func() any { return new([outSize]byte) }}

// A response is the http.ResponseWriter of one request.
type response struct {
	conn    *conn
	request *http.Request
	header  http.Header
	lent    *[outSize]byte
	out     []byte // what is to be sent, in lent

	status   int
	length   int64 // of the body as it was announced; -1 where it was not
	written  int64 // bytes of the body
	bodiless bool  // there is no body, whatever is written
	head     int   // how long the head is that waits in out for what the gap is for; 0 for none
	chunked  bool
	trailers []string // as they were announced
	closes   bool     // the connection ends with this answer
	deadline bool     // the handler has set a time for writing
	ended    bool
	err      error // of the connection
}

func newResponse(c *conn, r *http.Request) *response {
	w := &response{conn: c, request: r, header: make(http.Header, 8), length: -1, closes: r.Close, lent: outs.Get().(*[outSize]byte)}
	w.out = w.lent[:0]
	return w
}

// free gives back what was lent. The handler is not to use the response any more; what it writes is refused.
func (w *response) free() {
	w.ended = true
	w.out = nil
	outs.Put(w.lent)
	w.lent = nil
	if w.deadline {
		w.conn.SetWriteDeadline(time.Time{}) //nolint:errcheck // the next write says what is wrong
	}
}

// Header returns the fields that are written with the status, and the trailers after that.
func (w *response) Header() http.Header { return w.header }

// WriteHeader writes a status and the fields. An informational one is sent at once.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("plain: WriteHeader of status " + strconv.Itoa(status))
	}
	if w.status != 0 || w.ended {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.line(status)
		w.fields("Content-Length", "Transfer-Encoding", "Connection")
		w.out = append(w.out, crlf...)
		w.send(nil) //nolint:errcheck // the answer itself meets it
		return
	}
	w.status = status
	w.line(status)
	if w.announced(); w.length >= 0 {
		w.fields("Transfer-Encoding", "Connection", "Trailer")
	} else {
		w.fields("Transfer-Encoding", "Connection", "Trailer", "Content-Length")
	}
	if _, ok := w.header["Date"]; !ok {
		w.field("Date", w.conn.server.now())
	}
	if w.closes = w.closes || hasToken(w.header["Connection"], "close") || w.conn.server.closing.Load(); w.closes {
		w.field("Connection", "close")
	}
	w.frame()
}

const crlf = "\r\n"

// line writes the first line of an answer.
func (w *response) line(status int) {
	w.out = append(w.out, "HTTP/1.1 "...)
	w.out = strconv.AppendInt(w.out, int64(status), 10)
	w.out = append(w.out, ' ')
	if text := http.StatusText(status); text != "" {
		w.out = append(w.out, text...)
	} else {
		w.out = strconv.AppendInt(append(w.out, "status code "...), int64(status), 10) // as net/http has it
	}
	w.out = append(w.out, crlf...)
}

// fields writes the header fields but for some, in the order of their names.
func (w *response) fields(but ...string) {
	var few [24]string
	names := few[:0]
	for name := range w.header {
		if !slices.Contains(but, name) && !strings.HasPrefix(name, http.TrailerPrefix) && !slices.Contains(w.trailers, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if !httpsyntax.IsToken(name) {
			continue // as net/http does
		}
		for _, value := range w.header[name] {
			w.field(name, value)
		}
	}
}

// field writes one field. What would end its line is a space there.
func (w *response) field(name, value string) {
	w.out = append(w.out, name...)
	w.out = append(w.out, ": "...)
	start := len(w.out)
	w.out = append(w.out, trim(value)...)
	for i := start; i < len(w.out); i++ {
		if w.out[i] == '\r' || w.out[i] == '\n' {
			w.out[i] = ' '
		}
	}
	w.out = append(w.out, crlf...)
}

// announced takes note of how long the body is to be, where the handler says so.
func (w *response) announced() {
	if n := w.header["Content-Length"]; len(n) == 1 && w.status != http.StatusNoContent {
		if length, err := strconv.ParseInt(n[0], 10, 64); err == nil && length >= 0 && n[0][0] != '+' {
			w.length = length
		}
	}
}

// frame ends the head, or, where it is not known how long the body will be, leaves the gap.
func (w *response) frame() {
	w.bodiless = w.request.Method == http.MethodHead || w.bodilessStatus()
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); httpsyntax.IsToken(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
	if len(w.trailers) > 0 && w.length < 0 && !w.bodilessStatus() {
		for _, list := range w.header["Trailer"] {
			w.field("Trailer", list)
		}
	}
	if w.length >= 0 || w.bodilessStatus() {
		w.out = append(w.out, crlf...)
		return
	}
	w.head = len(w.out)
	w.out = append(w.out, make([]byte, gap)...)
}

func (w *response) bodilessStatus() bool {
	return w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write writes a part of the body.
func (w *response) Write(p []byte) (int, error) {
	if w.ended {
		return 0, http.ErrHandlerTimeout
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	case w.bodilessStatus():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && int64(len(p)) > w.length-w.written:
		w.closes = w.closes || !w.bodiless // as net/http does: who counts wrong is not believed
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.bodiless {
		return len(p), nil
	}
	if len(w.out)+len(p)+chunkRoom > outSize {
		return len(p), w.send(p)
	}
	if w.chunked && len(w.out) == 0 {
		w.out = append(w.out, make([]byte, chunkHead)...)
	}
	w.out = append(w.out, p...)
	return len(p), nil
}

// WriteString writes a part of the body.
func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Flush sends what was written.
func (w *response) Flush() { w.FlushError() } //nolint:errcheck // who wants it calls FlushError

// FlushError sends what was written.
func (w *response) FlushError() error {
	if w.ended {
		return http.ErrHandlerTimeout
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.send(nil)
}

// SetWriteDeadline sets until when the answer may take, for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.deadline = true
	return w.conn.Conn.SetWriteDeadline(t)
}

// SetReadDeadline does nothing, as there is no body to read.
func (w *response) SetReadDeadline(time.Time) error { return nil }

// EnableFullDuplex does nothing, as there is no body to read.
func (w *response) EnableFullDuplex() error { return nil }

var errShort = errors.New("plain: the answer is shorter than it said")

// end sends what is left of the answer.
func (w *response) end() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err == nil && !w.bodiless && w.length > w.written {
		w.send(nil) //nolint:errcheck // the connection ends either way
		return errShort
	}
	if w.head > 0 && w.bodiless {
		w.closeBodiless(w.written)
		return w.flush(nil)
	}
	if w.head > 0 && len(w.trailers) == 0 && !w.prefixed() {
		w.close("Content-Length: " + strconv.FormatInt(w.written, 10) + crlf + crlf)
		return w.flush(nil)
	}
	if w.head > 0 || w.chunked {
		w.chunk(0)
		w.out = append(w.out, "0\r\n"...)
		w.trail()
		w.out = append(w.out, crlf...)
	}
	return w.flush(nil)
}

// prefixed reports whether there are trailers that were not announced.
func (w *response) prefixed() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// trail writes the trailers.
func (w *response) trail() {
	for _, name := range w.trailers {
		for _, value := range w.header[name] {
			w.field(name, value)
		}
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && httpsyntax.IsToken(name) {
			for _, value := range values {
				w.field(name, value)
			}
		}
	}
}

func hasToken(values []string, token string) bool {
	for _, list := range values {
		for item := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(item, " \t"), token) {
				return true
			}
		}
	}
	return false
}
