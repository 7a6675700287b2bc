package room

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/weirflow/weir/policy"
)

// Preview returns the page of a room as a visitor would see it: waiting at a place far behind, kept while the store is unavailable,
// or before the opening. It has no script and does not reload, and so polls nothing. policy is its Content-Security-Policy.
func Preview(def policy.WaitingRoom, page []byte, state, language string) (body []byte, csp string, err error) {
	r := &Room{settings: def.WithDefaults(), log: slog.New(slog.DiscardHandler)}
	if r.page, err = parsePage(page); err != nil {
		return nil, "", err
	}
	w := &previewed{header: http.Header{}}
	v := &visit{room: r, w: w, isPreview: true, req: &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{"Accept-Language": {language}}}}
	const waiting = 4312
	shown := reply{State: state, Place: 1206, Ahead: 1205, Waiting: waiting, wait: 3 * time.Minute, first: 3000, PollAfter: maxDelay}
	if state == "before" {
		shown.opensIn = r.untilOpening(time.Now().UnixMicro())
		if shown.opensIn <= 0 {
			shown.opensIn = 10 * time.Minute
		}
	}
	v.showPage(shown)
	return w.body.Bytes(), w.header.Get("Content-Security-Policy"), nil
}

// previewed is a response in memory.
type previewed struct {
	header http.Header
	body   bytes.Buffer
}

// Header, WriteHeader and Write implement http.ResponseWriter.
func (w *previewed) Header() http.Header         { return w.header }
func (w *previewed) WriteHeader(int)             {}
func (w *previewed) Write(b []byte) (int, error) { return w.body.Write(b) }
