package policy

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/weirflow/weir/internal/jsonscan"
)

// MaxBodyRead is how much of a request's body is read for keys and estimates. The fields of a longer
// body count as unclear, as those of a body that is no JSON object: upstreams may read another value
// than the one that is seen here.
const MaxBodyRead = 1 << 20

// requestBody is what is known of the body of a request.
type requestBody struct {
	names  []string
	fields []jsonscan.Field // one for each name
	size   int64            // in bytes; below 0: more than was read
	logged bool             // only these fields are known, from a log
}

// field returns a field of the body. A request without a body has none.
func (b *requestBody) field(name string) jsonscan.Field {
	if b == nil {
		return jsonscan.Field{}
	}
	if i := slices.Index(b.names, name); i >= 0 && i < len(b.fields) {
		return b.fields[i]
	}
	return jsonscan.Field{}
}

// bodyValue returns a field of a body as a part of a key: a text, or a whole number as it is written.
// All other values are unclear: upstreams may take 1.0, 1e0 and true for 1, and each would have a
// counter of its own.
func bodyValue(f jsonscan.Field) (value string, present, unclear bool) {
	if !f.Present || f.Unclear || f.String || isWhole(f.Text) {
		return f.Text, f.Present, f.Unclear
	}
	return "", true, true
}

// isWhole reports whether a number is whole, and has one spelling. Beyond 2^53, upstreams that keep
// numbers as floating point take several for one.
func isWhole(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text && -1<<53 <= n && n <= 1<<53
}

// bodySize returns the size of the request's body, or how much of it is known to be there.
func (r *request) bodySize() (size int64, known bool) {
	switch {
	case r.Length >= 0:
		return r.Length, true
	case r.body != nil && r.body.logged:
		return 0, false
	case r.body != nil && r.body.size >= 0:
		return r.body.size, true
	case r.body != nil:
		return MaxBodyRead, false
	}
	return 0, false
}

// bodyFields are the fields of bodies that the limits of a route read.
type bodyFields struct {
	names []string
	tree  *jsonscan.Tree
	size  bool // the size of a body is read, too
}

// add adds what a limit reads.
func (b *bodyFields) add(l *limit) {
	for _, p := range l.parts {
		if p.kind == partBody {
			b.want(p.name)
		}
	}
	if l.late == nil {
		return
	}
	for _, t := range l.late.before {
		switch t.source {
		case estimateBody:
			for _, name := range t.names {
				b.want(name)
			}
		case estimateLearned:
			b.want(modelField)
		case estimatePrompt:
			b.size = true
		}
	}
}

// want adds a field.
func (b *bodyFields) want(name string) {
	if slices.Contains(b.names, name) {
		return
	}
	if b.tree == nil {
		b.tree = jsonscan.NewTree()
	}
	_ = b.tree.Add(name, len(b.names)) // already checked
	b.names = append(b.names, name)
}

// ReadsBody reports whether ReadBody would read the body of a request.
func (m *Match) ReadsBody(r *http.Request) bool {
	of := m.fields
	return of != nil && r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 &&
		(len(of.names) > 0 || r.ContentLength < 0) // the size alone is known from the Content-Length
}

// ErrBodyMemory is the error of ReadBody if there is no memory for a body.
var ErrBodyMemory = errors.New("the memory for the bodies of all requests is used up")

// A BodyMemory bounds the memory of the bodies that ReadBody keeps. Its methods must be safe for
// concurrent use.
type BodyMemory interface {
	Reserve(bytes int64) bool
	Release(bytes int64)
}

// ReadBody reads the body of a request, if the limits of its route depend on it, up to MaxBodyRead.
// It replaces r.Body by one that has the same bytes. Call it after Identify and RefuseUnread, and before
// DecideMatch; without it, no field of a body is there. The error is ErrBodyMemory, or that of the body.
//
// Memory is reserved as bytes come, and released as the new body is read. free releases the rest:
// call it once the request has ended. memory may be nil for no bound.
func (m *Match) ReadBody(r *http.Request, memory BodyMemory) (free func(), err error) {
	if !m.ReadsBody(r) {
		return func() {}, nil
	}
	of := m.fields
	b := &requestBody{names: of.names, size: -1}
	m.request.body = b
	if r.ContentLength > MaxBodyRead {
		b.read(of, nil, false)
		return func() {}, nil
	}
	kept := &keptBody{memory: memory, rest: r.Body}
	whole, err := kept.fill(MaxBodyRead + 1)
	if err != nil {
		kept.free()
		return func() {}, err
	}
	r.Body = kept
	if whole {
		b.size = kept.size
	}
	b.read(of, kept.parts, whole)
	return kept.free, nil
}

// LoggedBody is ReadBody for a request of which only a log is left: text is a JSON object with the
// fields of its body that the log has.
func (m *Match) LoggedBody(text []byte) {
	if m.fields == nil || len(text) == 0 {
		return
	}
	b := &requestBody{names: m.fields.names, size: int64(len(text)), logged: true}
	b.read(m.fields, [][]byte{text}, true)
	m.request.body = b
}

// read reads the fields of a body.
func (b *requestBody) read(of *bodyFields, text [][]byte, whole bool) {
	if of.tree != nil && (b.size != 0 || !whole) {
		b.fields = jsonscan.FieldsOf(of.tree, text, whole)
	}
}
