package room

import (
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// A Plan is what a queue of many visitors takes, by the rules of polling, and by the sizes of the responses that
// this program sends.
type Plan struct {
	Visitors  int64
	Wait      time.Duration // of the last visitor
	PeakPolls float64       // per second, while all of them wait
	Polls     float64       // in all
	PageBytes int           // of the first response to a browser, with its header
	PollBytes int           // of each response to a poll, and of its request, about
	Peak      float64       // bytes per second, while all of them wait
	Bytes     float64       // in all
}

// requestBytes is the size of a browser's poll: its header fields are some 500 bytes, and the ticket is some 200.
const requestBytes = 700

// PlanFor computes what a queue takes in which so many visitors wait at first, and which are admitted at a rate.
func PlanFor(visitors int64, rate weir.Rate) (*Plan, error) {
	page, poll, err := sizes()
	if err != nil {
		return nil, err
	}
	p := &Plan{Visitors: visitors, PageBytes: page, PollBytes: poll + requestBytes}
	perSecond := float64(rate.N) / rate.Per.Seconds()
	p.Wait = time.Duration(math.MaxInt64)
	if wait := float64(visitors) / perSecond; wait < p.Wait.Seconds() {
		p.Wait = time.Duration(wait * float64(time.Second))
	}
	for ahead := range visitors { // a visitor with so many ahead polls once in a delay, until the next one is admitted
		delay := min(shortestDelay.Seconds()+float64(ahead)*delayPerVisitor.Seconds(), maxDelay.Seconds())
		p.PeakPolls += 1 / delay
		p.Polls += p.PeakPolls / perSecond
	}
	p.Peak = p.PeakPolls * float64(p.PollBytes)
	p.Bytes = p.Polls*float64(p.PollBytes) + float64(visitors)*float64(page+requestBytes)
	return p, nil
}

// sizes returns how many bytes the page and the response to a poll have, by sending both.
func sizes() (page, poll int, err error) {
	queue, err := NewMemory(SpecOf(policy.WaitingRoom{Admit: weir.PerMinute(1), Burst: 1}), nil)
	if err != nil {
		return 0, 0, err
	}
	r, err := New(Options{Room: policy.WaitingRoom{Name: "room", Admit: weir.PerMinute(1), Burst: 1}, Queue: queue, Secrets: NewSecrets(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	send := func(id string, header http.Header, cookie string) *sized {
		w := &sized{header: http.Header{}}
		header = header.Clone()
		if cookie != "" {
			header.Set("Cookie", cookie)
		}
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: header, Host: "shop.example"}
		r.Serve(w, req, Client{Address: id}, func(http.ResponseWriter) {})
		return w
	}
	browser := http.Header{"Accept": {"text/html"}}
	for _, id := range []string{"a", "b"} { // the first one enters
		cookie := send(id, browser, "").cookie()
		w := send(id, browser, cookie)
		page = w.size()
		poll = send(id, http.Header{"Accept": {"application/json"}, "Weir-Room": {"poll"}}, w.cookie()).size()
	}
	return page, poll, nil
}

// sized is a response whose size counts.
type sized struct {
	header http.Header
	body   int
}

// Header, WriteHeader and Write implement http.ResponseWriter.
func (w *sized) Header() http.Header { return w.header }

// WriteHeader ignores the status, whose line is counted by size.
func (w *sized) WriteHeader(int) {}

func (w *sized) Write(b []byte) (int, error) { w.body += len(b); return len(b), nil }

// size is that of the whole response, with a status line and a Date.
func (w *sized) size() int {
	n := w.body + len("HTTP/1.1 503 Service Unavailable\r\nDate: Tue, 24 Nov 2026 00:00:00 GMT\r\n\r\n")
	for name, values := range w.header {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}

// cookie is the ticket, as a browser sends it back.
func (w *sized) cookie() string {
	resp := http.Response{Header: w.header}
	for _, c := range resp.Cookies() {
		return c.Name + "=" + c.Value
	}
	return ""
}
