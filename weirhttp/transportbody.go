package weirhttp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/usage"
)

// A watchedBody is the body of a response. It tells when it has ended: closed, or read to its end.
type watchedBody struct {
	io.ReadCloser
	length int64 // what the response announced; -1 if it did not

	mu    sync.Mutex
	read  int64
	ended bool
	meter *meter // nil if no cost is read from the body
	end   func(whole bool)
}

func (b *watchedBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.mu.Lock()
	b.read += int64(n)
	if n > 0 && !b.ended {
		b.meter.write(p[:n])
	}
	b.mu.Unlock()
	if err != nil {
		b.finish(err == io.EOF)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.mu.Lock()
	whole := b.read == b.length
	b.mu.Unlock()
	b.finish(whole)
	return err
}

// finish ends it once.
func (b *watchedBody) finish(whole bool) {
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return
	}
	b.ended = true
	b.meter.finish(whole)
	b.mu.Unlock()
	b.end(whole)
}

// A watchedConn is the body of a response that switched protocols, which can be written to.
type watchedConn struct {
	*watchedBody
	io.Writer
}

// watch makes a response tell when its body ends.
func watch(resp *http.Response, m *meter, end func(whole bool)) {
	if resp.Body == nil || resp.Body == http.NoBody {
		m.finish(true)
		end(true)
		return
	}
	b := &watchedBody{ReadCloser: resp.Body, length: resp.ContentLength, meter: m, end: end}
	if w, ok := resp.Body.(io.Writer); ok {
		resp.Body = watchedConn{b, w}
		return
	}
	resp.Body = b
}

// A meter reads costs from a response while it passes through. A nil meter reads none.
type meter struct {
	resp    *http.Response
	readers []*usage.Reader // one for each limit that reads its cost; nil for the others
	first   int             // the limit whose cost CostFrom returns
	began   time.Time
	headed  time.Time

	mu    sync.Mutex
	costs []readCost // nil until the body has ended
}

// A readCost is a cost that was read.
type readCost struct {
	cost  int64
	known bool
}

type meterKey struct{}

// newMeter returns a meter for limits, or nil if none of them reads its cost from responses. CostFrom
// finds it by the context of the response's request: other packages wrap bodies, or replace them.
func newMeter(all []due, resp *http.Response, began time.Time) *meter {
	var m *meter
	for i := range all {
		if all[i].usage == nil {
			continue
		}
		if m == nil {
			m = &meter{resp: resp, readers: make([]*usage.Reader, len(all)), first: i, began: began, headed: time.Now()}
		}
		m.readers[i] = all[i].usage.NewReader()
		m.readers[i].Header(resp.Header)
	}
	if m != nil {
		resp.Request = resp.Request.WithContext(context.WithValue(resp.Request.Context(), meterKey{}, m))
	}
	return m
}

func (m *meter) write(p []byte) {
	if m == nil {
		return
	}
	for _, r := range m.readers {
		if r != nil {
			r.Write(p)
		}
	}
}

func (m *meter) finish(whole bool) {
	if m == nil {
		return
	}
	costs := make([]readCost, len(m.readers))
	for i, r := range m.readers {
		if r == nil {
			continue
		}
		c := &costs[i]
		c.cost, c.known, _ = r.End(usage.Ending{Complete: whole, Trailer: m.resp.Trailer,
			Duration: time.Since(m.began), Upstream: m.headed.Sub(m.began)})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.costs, m.readers = costs, nil
}

// CostFrom returns the cost that a Transport has read from a response for ActualFrom; the first one,
// if several limits read one. It is known once the body has been closed or read to its end, also if
// another package has wrapped or replaced the body meanwhile, as http.Client does with a Timeout.
func CostFrom(resp *http.Response) (cost int64, known bool) {
	if resp == nil || resp.Request == nil {
		return 0, false
	}
	m, ok := resp.Request.Context().Value(meterKey{}).(*meter)
	if !ok {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.costs == nil {
		return 0, false
	}
	return m.costs[m.first].cost, m.costs[m.first].known
}
