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

// outSize is how much of a response is buffered before it is sent.
const outSize = 16 << 10

// gap is the space reserved before the first bytes of a body, for fields that are only known when
// those bytes are sent: the Content-Length, or chunked encoding.
const gap = 64

var outs = sync.Pool{New: func() any { return new([outSize]byte) }}

// A response is the http.ResponseWriter of one request.
type response struct {
	conn    *conn
	request *http.Request
	header  http.Header
	lent    *[outSize]byte
	out     []byte // the bytes to send, in lent

	status   int
	length   int64 // the announced Content-Length; -1 without one
	written  int64 // bytes of the body so far
	bodiless bool  // the response has no body, whatever the handler writes
	head     int   // the length of the head in out, while the gap is not filled; otherwise 0
	chunked  bool
	trailers []string // announced in the field Trailer
	closes   bool     // the connection ends after this response
	deadline bool     // the handler has set a write deadline
	ended    bool
	err      error // of writing to the connection
}

// begin begins the response to a request, with the header that it has from another response, which is empty.
func (w *response) begin(c *conn, r *http.Request) {
	h := w.header
	if h == nil {
		h = make(http.Header, fewFields)
	}
	*w = response{conn: c, request: r, header: h, length: -1, closes: r.Close}
}

// free returns the buffer to the pool. Later writes of the handler fail.
func (w *response) free() {
	w.ended = true
	w.out = nil
	if w.lent != nil {
		outs.Put(w.lent)
		w.lent = nil
	}
	if w.deadline {
		w.conn.SetWriteDeadline(time.Time{}) //nolint:errcheck // the next write says what is wrong
	}
}

// Header returns the fields to send with the status. After the status they hold the trailers.
func (w *response) Header() http.Header { return w.header }

// WriteHeader writes the status and the header fields. It sends a 1xx response at once.
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

// line writes the status line, which is the first that needs a buffer: a request that waits in a queue has none.
func (w *response) line(status int) {
	if w.lent == nil {
		w.lent = outs.Get().(*[outSize]byte)
		w.out = w.lent[:0]
	}
	w.out = append(w.out, "HTTP/1.1 "...)
	w.out = strconv.AppendInt(w.out, int64(status), 10)
	w.out = append(w.out, ' ')
	if text := http.StatusText(status); text != "" {
		w.out = append(w.out, text...)
	} else {
		// like net/http
		w.out = strconv.AppendInt(append(w.out, "status code "...), int64(status), 10)
	}
	w.out = append(w.out, crlf...)
}

// headerField is a field of a header, with its values.
type headerField struct {
	name   string
	values []string
}

// fields writes the header fields in the order of their names, except those in but, whose names begin with C or T.
func (w *response) fields(but ...string) {
	var few [12]headerField
	all := few[:0]
	for name, values := range w.header {
		if name == "" || (name[0] == 'C' || name[0] == 'T') && (slices.Contains(but, name) || strings.HasPrefix(name, http.TrailerPrefix)) ||
			len(w.trailers) > 0 && slices.Contains(w.trailers, name) {
			continue
		}
		all = append(all, headerField{name, values})
	}
	sortFields(all)
	for i := range all {
		f := &all[i]
		if !httpsyntax.IsToken(f.name) {
			continue // like net/http
		}
		for _, value := range f.values {
			w.field(f.name, value)
		}
	}
}

// sortFields sorts a few fields faster than slices.SortFunc.
func sortFields(all []headerField) {
	if len(all) > 2*fewFields {
		slices.SortFunc(all, func(a, b headerField) int { return strings.Compare(a.name, b.name) })
		return
	}
	for i := 1; i < len(all); i++ {
		f, at := all[i], i
		for ; at > 0 && f.name < all[at-1].name; at-- {
			all[at] = all[at-1]
		}
		all[at] = f
	}
}

// field writes one field. It replaces line breaks by spaces, against header injection.
func (w *response) field(name, value string) {
	w.out = append(w.out, name...)
	w.out = append(w.out, ": "...)
	start := len(w.out)
	w.out = append(w.out, trim(value)...)
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		for i := start; i < len(w.out); i++ {
			if w.out[i] == '\r' || w.out[i] == '\n' {
				w.out[i] = ' '
			}
		}
	}
	w.out = append(w.out, crlf...)
}

// announced records the Content-Length that the handler set.
func (w *response) announced() {
	if n := w.header["Content-Length"]; len(n) == 1 && w.status != http.StatusNoContent {
		if length, err := strconv.ParseInt(n[0], 10, 64); err == nil && length >= 0 && n[0][0] != '+' {
			w.length = length
		}
	}
}

// frame ends the head. If the length of the body is not known yet, it leaves the gap.
func (w *response) frame() {
	w.bodiless = bodiless(w.request.Method, w.status)
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); httpsyntax.IsToken(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
	if len(w.trailers) > 0 && w.length < 0 && !bodilessStatus(w.status) {
		for _, list := range w.header["Trailer"] {
			w.field("Trailer", list)
		}
	}
	if w.length >= 0 || bodilessStatus(w.status) {
		w.out = append(w.out, crlf...)
		return
	}
	w.head = len(w.out)
	w.out = append(w.out, make([]byte, gap)...)
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
	case bodilessStatus(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && int64(len(p)) > w.length-w.written:
		// like net/http: after a wrong Content-Length, the connection is closed
		w.closes = w.closes || !w.bodiless
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

// Flush sends what is buffered.
func (w *response) Flush() { w.FlushError() } //nolint:errcheck // http.Flusher returns no error; callers that need it call FlushError

// FlushError sends what is buffered, and returns the error of writing to the connection.
func (w *response) FlushError() error {
	if w.ended {
		return http.ErrHandlerTimeout
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.send(nil)
}

// SetWriteDeadline sets the deadline of sending the response, for http.ResponseController.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.deadline = true
	return w.conn.Conn.SetWriteDeadline(t)
}

// SetReadDeadline does nothing, because there is no body to read.
func (w *response) SetReadDeadline(time.Time) error { return nil }

// EnableFullDuplex does nothing, because there is no body to read.
func (w *response) EnableFullDuplex() error { return nil }

var errShort = errors.New("plain: the response is shorter than its Content-Length")

// end sends the rest of the response.
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

// prefixed reports whether there are trailers that the field Trailer did not announce.
func (w *response) prefixed() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

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
