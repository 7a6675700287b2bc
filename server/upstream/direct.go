package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/weirflow/weir/server/plain"
)

// newClient is how the targets of an upstream are spoken to without net/http. It is nil where they speak more than plain HTTP/1.1.
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
	return &plain.Client{Dial: dial, Connect: t.Connect, Answer: t.Response, Stall: t.Idle, MaxIdle: s.spec.MaxIdle}
}

// A Direct is the way to the targets of an upstream without net/http, as it was when it was asked for: a change of the policy meanwhile is no matter.
type Direct struct {
	u *Upstream
	s *settings
}

// Direct returns the way without net/http for a request. There is one for plain requests, where all targets speak plain HTTP/1.1.
func (u *Upstream) Direct(r *http.Request) (d Direct, ok bool) {
	s := u.settings.Load()
	return Direct{u, s}, s.client != nil && plain.Takes(r)
}

// Pass sends a request to a target, as RoundTrip would, and writes the answer to w, with a fraction of the effort. The fields go in place of the
// request's of the same names. It reports whether w was written to: then an error leaves the answer incomplete.
func (d Direct) Pass(w http.ResponseWriter, r *http.Request, fields []plain.Field) (answered bool, err error) {
	err = d.u.try(d.s, func(e Exchange) (bool, error) {
		progress, err := d.s.client.Pass(w, r, plain.Passage{Addr: e.Target.addr, Fields: fields, Heard: e.heard()})
		e.Done(outcome(r, err))
		answered = err == nil || progress == plain.Answered
		return again(r, progress, err), err
	})
	return answered, err
}

// heard is Heard, where that says something.
func (e *Exchange) heard() func() {
	if e.calm {
		return nil
	}
	return e.Heard
}

// outcome is how an exchange went.
func outcome(r *http.Request, err error) (Outcome, string) {
	var client *plain.ClientError
	switch {
	case err == nil:
		return Answered, ""
	case errors.As(err, &client), r.Context().Err() != nil:
		return Left, ""
	}
	return Failed, Reason(err)
}

// again reports whether a request may be sent to another target: the methods that Takes takes do no harm when they are repeated.
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
