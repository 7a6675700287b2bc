package gateway

import (
	"container/list"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/policy"
)

// answers keeps the last good answer of upstreams for each thing that was asked for, in bounded memory: the one that was wanted longest ago goes
// first. It is no cache: what is kept is given only where there would be no answer else.
type answers struct {
	mu        sync.Mutex
	kept      map[string]*list.Element // of *kept
	order     list.List                // the one wanted last is in front
	bytes     int                      // of all that is kept
	recording int                      // bytes of answers that are still coming
}

// Bounds on what is kept.
const (
	maxAnswers   = 64 << 20 // bytes of all answers
	maxRecording = 32 << 20 // bytes of those that are still coming
	maxAnswer    = 1 << 20  // bytes of one
	entryBytes   = 512      // what the memory for one takes besides
	renewAfter   = time.Second
)

// kept is an answer.
type kept struct {
	key    string
	header http.Header
	body   []byte
	at     time.Time
	age    time.Duration // that it had when it came
	bytes  int
}

func newAnswers() *answers { return &answers{kept: map[string]*list.Element{}} }

// askedFor says what a request asks an upstream for. Hosts and targets have no line feeds.
func askedFor(name string, r *http.Request) string {
	return name + "\n" + strings.ToLower(r.Host) + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery
}

// identities are the fields of requests that clients may be known by: cookies, and those that the keys of limits are made of.
func identities(p *policy.Policy) []string {
	all := []string{"Cookie"}
	for _, l := range p.Limits {
		for _, part := range l.Key {
			if name, is := strings.CutPrefix(part, "header."); is {
				all = append(all, http.CanonicalHeaderKey(name))
			}
		}
	}
	return all
}

// keep keeps an answer when all of it has come, where it may be given to anyone who asks for the same.
func (a *answers) keep(name string, identities []string, resp *http.Response) {
	if !forAnyone(resp, identities) {
		return
	}
	key := askedFor(name, resp.Request)
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.kept[key]; e != nil && time.Since(e.Value.(*kept).at) < renewAfter {
		return // busy pages are copied once a second, not each time
	}
	if a.recording+maxAnswer > maxRecording {
		return
	}
	a.recording += maxAnswer
	resp.Body = &recording{ReadCloser: resp.Body, answers: a, kept: newKept(key, resp)}
}

func newKept(key string, resp *http.Response) *kept {
	header := maps.Clone(resp.Header) // its values are not changed by anyone
	for _, name := range []string{"Age", "Cache-Status", "Content-Length", "Retry-After", "Trailer"} {
		delete(header, name)
	}
	k := &kept{key: key, header: header, at: time.Now()}
	if age, err := strconv.ParseUint(resp.Header.Get("Age"), 10, 31); err == nil {
		k.age = time.Duration(age) * time.Second
	}
	return k
}

// forAnyone reports whether an answer depends on nothing but what its URL asks for, and says nothing against being given again.
func forAnyone(resp *http.Response, identities []string) bool {
	r := resp.Request
	h := resp.Header
	switch {
	case r.Method != http.MethodGet || resp.StatusCode != http.StatusOK || resp.ContentLength > maxAnswer:
		return false
	case len(r.Header["Authorization"]) > 0 || len(r.Header["Range"]) > 0 || r.ContentLength != 0:
		return false
	case len(h["Set-Cookie"]) > 0 || len(h["Content-Range"]) > 0 || len(resp.Trailer) > 0:
		return false
	case strings.HasPrefix(h.Get("Content-Type"), "text/event-stream"):
		return false
	}
	for _, name := range tokens(h["Vary"]) {
		if name != "accept-encoding" {
			return false
		}
	}
	public := false
	for _, directive := range tokens(h["Cache-Control"]) {
		name, _, _ := strings.Cut(directive, "=")
		switch strings.TrimSpace(name) {
		case "private", "no-store", "no-cache", "must-revalidate", "proxy-revalidate":
			return false
		case "public", "s-maxage":
			public = true
		}
	}
	return public || !slices.ContainsFunc(identities, func(name string) bool { return len(r.Header[name]) > 0 })
}

// tokens are the elements of header fields that are lists, in small letters.
func tokens(values []string) (all []string) {
	for _, v := range values {
		for token := range strings.SplitSeq(v, ",") {
			if token = strings.ToLower(strings.TrimSpace(token)); token != "" {
				all = append(all, token)
			}
		}
	}
	return all
}

// recording is an answer that is passed on, and kept if it comes to its end.
type recording struct {
	io.ReadCloser
	answers *answers
	kept    *kept // nil for one that will not be kept
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.kept == nil {
		return n, err
	}
	if len(r.kept.body)+n > maxAnswer {
		r.end(false)
		return n, err
	}
	r.kept.body = append(r.kept.body, p[:n]...)
	if err != nil {
		r.end(err == io.EOF)
	}
	return n, err
}

// Close ends the answer.
func (r *recording) Close() error {
	r.end(false)
	return r.ReadCloser.Close()
}

// end gives back the room for recording, and keeps the answer where it is complete.
func (r *recording) end(complete bool) {
	k := r.kept
	if k == nil {
		return
	}
	r.kept = nil
	a := r.answers
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recording -= maxAnswer
	if complete {
		a.put(k)
	}
}

// put keeps an answer in place of the one before. The lock is held.
func (a *answers) put(k *kept) {
	k.body = append(make([]byte, 0, len(k.body)), k.body...)
	k.bytes = entryBytes + len(k.key) + len(k.body)
	for name, values := range k.header {
		for _, v := range values {
			k.bytes += len(name) + len(v)
		}
	}
	if e := a.kept[k.key]; e != nil {
		a.drop(e)
	}
	a.kept[k.key] = a.order.PushFront(k)
	a.bytes += k.bytes
	for a.bytes > maxAnswers {
		a.drop(a.order.Back())
	}
}

func (a *answers) drop(e *list.Element) {
	k := a.order.Remove(e).(*kept)
	delete(a.kept, k.key)
	a.bytes -= k.bytes
}

// find returns an answer that is at most that old, nil where there is none.
func (a *answers) find(key string, oldest time.Duration) *kept {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.kept[key]
	if e == nil {
		return nil
	}
	k := e.Value.(*kept)
	if time.Since(k.at)+k.age > oldest {
		return nil
	}
	a.order.MoveToFront(e)
	return k
}

// give answers a request with the last good answer, marked as one that was kept, and why. It reports false where there is none.
func (a *answers) give(w http.ResponseWriter, r *http.Request, name string, oldest time.Duration, why string) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
		return false
	}
	k := a.find(askedFor(name, r), oldest)
	if k == nil || !understands(r.Header["Accept-Encoding"], k.header.Get("Content-Encoding")) {
		return false
	}
	h := w.Header()
	delete(h, "Retry-After")
	for name, values := range k.header {
		h[name] = append(h[name], values...)
	}
	h.Set("Age", strconv.FormatInt(int64((time.Since(k.at)+k.age)/time.Second), 10))
	h.Set("Cache-Status", "weir; hit; detail="+why)
	h.Set("Content-Length", strconv.Itoa(len(k.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		w.Write(k.body)
	}
	return true
}

// understands reports whether a client takes a content coding.
func understands(accept []string, coding string) bool {
	coding = strings.ToLower(coding)
	if coding == "" || coding == "identity" {
		return true
	}
	for _, item := range tokens(accept) {
		name, parameters, _ := strings.Cut(item, ";")
		if strings.TrimSpace(name) != coding {
			continue
		}
		q, has := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
		v, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return !has || err == nil && v > 0
	}
	return false
}
