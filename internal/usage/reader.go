package usage

import (
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/jsonscan"
)

// number is what was read of one field.
type number struct {
	n   int64
	set bool
	bad bool // the last value was no whole number from 0 to 2^63-1
}

// A Reader reads the usage of one response. Begin it with Header, give it the body with Write, and
// end it with End. It is not safe for concurrent use.
type Reader struct {
	spec *Spec

	fields []number // by slot
	heads  []number // by term, for header and trailer fields: what the header has
	bytes  int64
	body   bodyKind
	zipped bool

	// These are nil until the first part of the body has come.
	scan    *jsonscan.Scanner
	events  *events // nil for other bodies
	inflate *inflater

	finals  int  // documents or events with the final numbers
	inFinal bool // the present one has them
}

// bodyKind is how a body is read.
type bodyKind uint8

const (
	bodyIgnored bodyKind = iota
	bodyJSON
	bodyEvents
)

// NewReader returns a Reader for one response.
func (s *Spec) NewReader() *Reader {
	all := make([]number, s.slots+len(s.terms))
	return &Reader{spec: s, fields: all[:s.slots], heads: all[s.slots:]}
}

// Header reads the header of the response. What the body needs is made when it comes, so that the header
// goes on at once.
func (r *Reader) Header(h http.Header) {
	for i, t := range r.spec.terms {
		if t.source == fromHeader || t.source == fromTrailer {
			r.heads[i] = fieldNumber(h[t.name])
		}
	}
	if r.spec.tree == nil {
		return
	}
	r.body = bodyJSON
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
		r.body = bodyEvents
	}
	switch encoding := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ","))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		r.zipped = true
	default:
		r.body = bodyIgnored
	}
}

// begin makes what reads the body.
func (r *Reader) begin() {
	b := &struct {
		scan   jsonscan.Scanner
		events events
	}{scan: *jsonscan.NewScanner(r.spec.tree, r)}
	r.scan = &b.scan
	if r.body == bodyEvents {
		b.events = events{scan: r.scan, rare: r.spec.rare, of: r}
		r.events = &b.events
	}
	if r.zipped {
		r.inflate = newInflater(r.spec.unzips, r.read)
	}
}

// Write reads a part of the body as it was sent. It never fails.
func (r *Reader) Write(p []byte) {
	r.bytes += int64(len(p))
	if r.body == bodyIgnored || len(p) == 0 {
		return
	}
	if r.scan == nil {
		r.begin()
	}
	switch {
	case r.inflate != nil:
		r.inflate.write(p)
	default:
		r.read(p)
	}
}

// Passed counts bytes that passed by and were not written, as on an upgraded connection.
func (r *Reader) Passed(n int64) { r.bytes += n }

// read reads a part of the decoded body.
func (r *Reader) read(p []byte) {
	if r.body == bodyEvents {
		r.events.write(p)
		return
	}
	r.scan.Scan(p)
}

// Value is of jsonscan.Sink.
func (r *Reader) Value(slot int, kind jsonscan.Kind, text []byte) {
	if kind == jsonscan.Scalar && string(text) == "null" {
		return
	}
	f := number{set: true}
	var ok bool
	if f.n, ok = jsonscan.Int(text); kind != jsonscan.Scalar || !ok {
		f = number{bad: true}
	}
	r.fields[slot] = f
	if r.spec.final[slot] && f.set && !r.inFinal {
		r.inFinal = true
		r.finals++
	}
}

// Doc is of jsonscan.Sink. Within events, the event is the document.
func (r *Reader) Doc() {
	if r.body != bodyEvents {
		r.inFinal = false
	}
}

func (r *Reader) endEvent() { r.inFinal = false }

// An Ending is how a response ended.
type Ending struct {
	Complete bool          // to its regular end
	Trailer  http.Header   // its trailer fields, also under the prefix http.TrailerPrefix
	Duration time.Duration // from when the request went on to the end of the response
	Upstream time.Duration // from when the request went on to the header of the response
}

// End ends the response and returns its cost. known reports whether the cost was read in full.
// Otherwise, seen reports whether anything was read, which cost is the sum of. A second call returns
// the same.
func (r *Reader) End(e Ending) (cost int64, known, seen bool) {
	if r.inflate != nil {
		r.inflate.close()
		r.inflate = nil
	}
	if r.events != nil {
		r.events.close()
	}
	known = true
	for i, t := range r.spec.terms {
		n, f := r.part(i, &t, &e)
		known = known && f.known
		seen = seen || f.seen
		var fits bool
		if cost, fits = sum(cost, t.weight, n); !fits {
			return math.MaxInt64, false, false
		}
	}
	return cost, known, seen
}

// found is how much of a term was read.
type found struct{ known, seen bool }

// part returns the number of a term.
func (r *Reader) part(i int, t *term, e *Ending) (int64, found) {
	switch t.source {
	case fromBytes:
		return r.bytes, found{e.Complete, true}
	case fromDuration:
		return milliseconds(e.Duration), found{true, true}
	case fromUpstreamTime:
		return milliseconds(e.Upstream), found{e.Upstream > 0, e.Upstream > 0}
	case fromTrailer:
		values := e.Trailer[t.name]
		if len(values) == 0 {
			values = e.Trailer[textproto.CanonicalMIMEHeaderKey(http.TrailerPrefix+t.name)]
		}
		if len(values) == 0 {
			values = e.Trailer[http.TrailerPrefix+t.name]
		}
		n := fieldNumber(values)
		if !e.Complete && n == r.heads[i] {
			n = number{} // it is the field of that name in the header: servers keep both in one map
		}
		return n.n, found{n.set, n.set}
	case fromHeader:
		return r.heads[i].n, found{r.heads[i].set, r.heads[i].set}
	case fromJSON:
		f := r.fields[t.slot]
		return f.n, found{f.set && r.complete(e), f.set}
	}
	fields := r.fields[t.base : t.base+int(slotCount)]
	n, ok := t.preset.of(t.part, fields)
	final, seen := false, false
	for s, f := range fields {
		ok = ok && !f.bad
		seen = seen || f.set
		final = final || f.set && r.spec.final[t.base+s]
	}
	if !ok && !seen {
		n = 0
	}
	return n, found{ok && final && r.complete(e), seen}
}

// complete reports whether the final numbers have come. A response that was cut off behind them is
// complete, unless such numbers had come before, too: then they are those of each moment.
func (r *Reader) complete(e *Ending) bool {
	switch {
	case e.Complete:
		return true
	case r.events != nil:
		return r.events.done || r.spec.closes && r.finals == 1
	}
	return r.scan != nil && r.scan.Idle() && r.finals == 1
}

// milliseconds rounds a duration up.
func milliseconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// fieldNumber reads a header or trailer field, which must have one value.
func fieldNumber(values []string) number {
	if len(values) != 1 {
		return number{}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 64)
	if err != nil || n < 0 {
		return number{bad: true}
	}
	return number{n: n, set: true}
}

// maxInflated is how much of a compressed body is decompressed. Beyond it, the rest is ignored: a
// small body can decompress to any size.
const maxInflated = 64 << 20

// inflater decompresses a body. compress/gzip reads, while a body that passes by is written: so it
// runs in a goroutine, which ends with the body.
type inflater struct {
	to   *io.PipeWriter
	done chan struct{}
}

func newInflater(readers interface {
	Get() any
	Put(any)
}, read func([]byte)) *inflater {
	from, to := io.Pipe()
	f := &inflater{to: to, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer from.Close() // writes fail from then on, and nobody waits
		z, _ := readers.Get().(*gzip.Reader)
		var err error
		if z == nil {
			z, err = gzip.NewReader(from)
		} else {
			err = z.Reset(from)
		}
		if err != nil {
			return
		}
		defer readers.Put(z)
		buf := make([]byte, 4096)
		for left := maxInflated; left > 0; {
			n, err := z.Read(buf)
			read(buf[:n])
			if left -= n; err != nil {
				return
			}
		}
	}()
	return f
}

// write waits until p is read.
func (f *inflater) write(p []byte) { _, _ = f.to.Write(p) }

// close waits until all is read.
func (f *inflater) close() {
	_ = f.to.Close()
	<-f.done
}

// AcceptEncoding returns the Accept-Encoding for a response that is to be read, from what the client
// accepts: gzip, or identity.
func AcceptEncoding(values []string) string {
	for element := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, q, _ := strings.Cut(element, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "gzip" && coding != "x-gzip" && coding != "*" {
			continue
		}
		if q = strings.ReplaceAll(strings.ToLower(q), " ", ""); !strings.HasPrefix(q, "q=0") || strings.Trim(q[len("q=0"):], ".0") != "" {
			return "gzip"
		}
	}
	return "identity"
}
