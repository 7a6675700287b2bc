package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/weirflow/weir/server/plain"
)

// newClient returns the client for plain requests, which bypasses net/http. It returns nil if the
// targets use more than plain HTTP/1.1.
func newClient(s *settings, urls []string, dial func(context.Context, string, string) (net.Conn, error)) *plain.Client {
	if p := s.spec.Protocol; p != "" && p != "auto" && p != "http1" {
		return nil
	}
	for _, scheme := range urls {
		if scheme != "http" {
			return nil
		}
	}
	t := s.spec.Timeouts
	if dial == nil {
		dial = dialer(t.Connect)
	}
	return &plain.Client{Dial: dial, Connect: t.Connect, Answer: t.Response, Stall: t.Idle, MaxIdle: s.spec.MaxIdle}
}

// A Direct forwards requests to the targets of an upstream without net/http. It keeps the settings
// of the moment when it was created, even if the policy changes.
type Direct struct {
	u *Upstream
	s *settings
	p *Place
}

// At returns the way for a request that has a place; nil is none.
func (d Direct) At(p *Place) Direct {
	d.p = p
	return d
}

// Direct returns the way without net/http for a request. ok is true if the request is plain and all
// targets use plain HTTP/1.1.
func (u *Upstream) Direct(r *http.Request) (d Direct, ok bool) {
	s := u.settings.Load()
	return Direct{u, s, nil}, s.client != nil && plain.Takes(r)
}

// Pass sends a request to a target and writes the response to w, like RoundTrip but with a fraction
// of the overhead. The fields replace the request's fields of the same names. answered reports
// whether w was written to. If it is true and there is an error, the response is incomplete.
func (d Direct) Pass(w http.ResponseWriter, r *http.Request, fields []plain.Field) (answered bool, err error) {
	err = d.u.try(d.s, d.p, func(e Exchange) (bool, error) {
		if e.calm { // Heard would change nothing, and a call of it from elsewhere costs an allocation
			return d.exchange(&e, w, r, fields, nil, &answered)
		}
		watched := e
		return d.exchange(&watched, w, r, fields, watched.Heard, &answered)
	})
	return answered, err
}

// exchange sends a request to one target. It reports whether the request may be sent to another one.
func (d Direct) exchange(e *Exchange, w http.ResponseWriter, r *http.Request, fields []plain.Field, heard func(), answered *bool) (mayRepeat bool, err error) {
	progress, err := d.s.client.Pass(w, r, e.Target.addr, fields, heard)
	if err == nil {
		*answered = true
		e.Done(Answered, "")
		return false, nil
	}
	*answered = progress == plain.Answered
	if progress == plain.Unsent {
		err = local(err)
	}
	e.Done(outcome(r, err))
	return again(r, progress, err), err
}

// outcome returns the outcome of an exchange that ended with an error, and why.
func outcome(r *http.Request, err error) (Outcome, string) {
	var client *plain.ClientError
	switch {
	case errors.As(err, &client), r.Context().Err() != nil, isOurs(err):
		return Left, ""
	}
	return Failed, Reason(err)
}

// again reports whether a request may be sent to another target after an error. All methods that plain.Takes
// accepts are idempotent.
func again(r *http.Request, progress plain.Progress, err error) bool {
	var timeout net.Error
	switch {
	case r.Context().Err() != nil || progress >= plain.Heard:
		return false
	case progress == plain.Unsent:
		return true
	}
	return !errors.As(err, &timeout) || !timeout.Timeout()
}
