package gateway

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/list"
	"github.com/weirflow/weir/policy"
)

// staleResponses stores the last good response for each request target, in bounded memory; the
// least recently used one is evicted first. It is no cache: a stored response is sent only in place
// of a refusal or a failure.
type staleResponses struct {
	mu        sync.Mutex
	kept      map[string]*storedResponse
	order     list.List[storedResponse] // the most recently used one is in front
	bytes     int                       // of all stored responses
	recording int                       // bytes reserved for responses in progress
}

// Bounds on stored responses.
const (
	maxAnswers   = 64 << 20 // bytes of all responses
	maxRecording = 32 << 20 // bytes of those in progress
	maxAnswer    = 1 << 20  // bytes of one response
	entryBytes   = 512      // overhead of one response in memory
	renewAfter   = time.Second
)

// storedResponse is a response that can be sent again.
type storedResponse struct {
	node   list.Node[storedResponse]
	key    string
	header http.Header
	body   []byte
	at     time.Time
	age    time.Duration // that it had when it arrived
	bytes  int
}

func newStaleResponses() *staleResponses { return &staleResponses{kept: map[string]*storedResponse{}} }

// askedFor is the key of a stored response. Hosts and targets contain no line feeds.
func askedFor(name string, r *http.Request) string {
	return name + "\n" + strings.ToLower(r.Host) + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery
}

// identities are the header fields that may identify a client: cookies, and the fields in keys of
// limits.
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

// keep stores a response once it is complete, if it may be sent to every client.
func (a *staleResponses) keep(name string, identities []string, resp *http.Response) {
	if !forAnyone(resp, identities) {
		return
	}
	key := askedFor(name, resp.Request)
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.kept[key]; k != nil && time.Since(k.at) < renewAfter {
		return // a busy page is copied once a second, not for each request
	}
	if a.recording+maxAnswer > maxRecording {
		return
	}
	a.recording += maxAnswer
	resp.Body = &recording{ReadCloser: resp.Body, answers: a, kept: newStoredResponse(key, resp)}
}

func newStoredResponse(key string, resp *http.Response) *storedResponse {
	header := maps.Clone(resp.Header) // nobody changes its values
	for _, name := range []string{"Age", "Cache-Status", "Content-Length", "Retry-After", "Trailer"} {
		delete(header, name)
	}
	k := &storedResponse{key: key, header: header, at: time.Now()}
	if age, err := strconv.ParseUint(resp.Header.Get("Age"), 10, 31); err == nil {
		k.age = time.Duration(age) * time.Second
	}
	return k
}

// forAnyone reports whether a response depends on the URL alone, and may be sent again.
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

// tokens are the elements of list header fields, in lower case.
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

// recording is the body of a response that is forwarded, and stored if it is complete.
type recording struct {
	io.ReadCloser
	answers *staleResponses
	kept    *storedResponse // nil if it will not be stored
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

// Close ends the response.
func (r *recording) Close() error {
	r.end(false)
	return r.ReadCloser.Close()
}

// end releases the memory reserved for recording, and stores a complete response.
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

// put replaces a stored response. The lock is held.
func (a *staleResponses) put(k *storedResponse) {
	k.body = append(make([]byte, 0, len(k.body)), k.body...)
	k.bytes = entryBytes + len(k.key) + len(k.body)
	for name, values := range k.header {
		for _, v := range values {
			k.bytes += len(name) + len(v)
		}
	}
	if old := a.kept[k.key]; old != nil {
		a.drop(old)
	}
	a.kept[k.key] = k
	a.order.PushFront(&k.node, k)
	a.bytes += k.bytes
	for a.bytes > maxAnswers {
		a.drop(a.order.Last())
	}
}

func (a *staleResponses) drop(k *storedResponse) {
	a.order.Remove(&k.node)
	delete(a.kept, k.key)
	a.bytes -= k.bytes
}

// find returns a stored response of at most that age, nil for none.
func (a *staleResponses) find(key string, oldest time.Duration) *storedResponse {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.kept[key]
	if k == nil {
		return nil
	}
	if time.Since(k.at)+k.age > oldest {
		return nil
	}
	a.order.Remove(&k.node)
	a.order.PushFront(&k.node, k)
	return k
}

// give sends the stored response, marked as such with the reason. It reports false if there is
// none.
func (a *staleResponses) give(w http.ResponseWriter, r *http.Request, name string, oldest time.Duration, why string) bool {
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

// understands reports whether a client accepts a content coding.
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
