package upstream

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/weirflow/weir/server/descriptors"
)

// A failed attempt counts against its target only if the target caused it. Two kinds of errors are
// others' doing: a RequestError is the request's, and a LocalError is this process's.

// A RequestError is the error of a request that no target could be sent. It is not retried.
type RequestError struct {
	Err      error
	TooLarge bool // its header is larger than the target accepts
}

// Error returns the message of the underlying error, after "the request cannot be sent: ".
func (e *RequestError) Error() string { return "the request cannot be sent: " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *RequestError) Unwrap() error { return e.Err }

// A LocalError is the error of a request that was not sent because this process lacks descriptors,
// ports or memory.
type LocalError struct{ Err error }

// Error returns the reason of the underlying error, after "not sent: ".
func (e *LocalError) Error() string { return "not sent: " + Reason(e.Err) }

// Unwrap returns the underlying error.
func (e *LocalError) Unwrap() error { return e.Err }

// scarce are the errors of a process or a system that has no more of something.
var scarce = [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRINUSE}

// local turns the error of a connection that was not made into a LocalError, if this process or its
// system caused it.
func local(err error) error {
	for _, e := range scarce {
		if errors.Is(err, e) {
			return &LocalError{err}
		}
	}
	var lookup *net.DNSError
	switch {
	case errors.Is(err, descriptors.ErrExhausted), errors.Is(err, syscall.EADDRNOTAVAIL) && lacksPorts(err):
		return &LocalError{err}
	case errors.As(err, &lookup):
		for _, e := range scarce { // the resolver keeps only the text of the errors of its sockets
			if strings.Contains(lookup.Err, e.Error()) {
				return &LocalError{err}
			}
		}
	}
	return err
}

// lacksPorts reports whether a connection failed because all local ports towards its target are in
// use. The system gives the same error for an address of a family that this machine does not have.
// That one cannot be reached from a socket for datagrams either, which sends nothing here.
func lacksPorts(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr == nil {
		return false
	}
	conn, err := net.DialTimeout("udp", op.Addr.String(), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// Texts of net/http's errors for requests that it does not write to an HTTP/2 target: the header is
// larger than the target announced, or something in it has no form in HTTP/2. They have no types.
const (
	tooLargeForTarget = "request header list larger than peer's advertised limit"
	notForHTTP2       = "http2: invalid "
)

// blame sorts the error of an attempt by who caused it.
func (a *attempt) blame(err error) error {
	switch {
	case !a.wanted.Load(): // net/http refused the request before it looked for a connection
		return &RequestError{Err: err}
	case strings.Contains(err.Error(), tooLargeForTarget):
		return &RequestError{Err: err, TooLarge: true}
	case strings.HasPrefix(err.Error(), notForHTTP2):
		return &RequestError{Err: err}
	}
	return local(err)
}

// isOurs reports whether an error is a RequestError or a LocalError.
func isOurs(err error) bool {
	var request *RequestError
	var lacking *LocalError
	return errors.As(err, &request) || errors.As(err, &lacking)
}

// dialer opens connections to targets within a timeout, and leaves the reserve of descriptors alone.
func dialer(timeout time.Duration) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second, Control: descriptors.Current().Control}
	return d.DialContext
}
