// Package face is what the server and its faces know of each other. A face translates between a
// protocol and the active policy: the gateway between HTTP and it, the admin API between operators
// and it. A face is a package of its own below server, and a line in server/faces.go.
package face

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
)

// A Kind is a sort of face, by the word that names it below listen in a policy file.
type Kind struct {
	Name string

	// Open listens where the active policy says. It is called only where the policy file has the
	// word.
	Open func(ctx context.Context, h Host) (Face, error)

	// Check returns what in a valid policy the face cannot serve; nil means that it serves all of
	// them. It is called only where the policy file has the word. It may read files that the policy
	// names, unless the file is untrusted.
	Check func(file *policyfile.File) []policyfile.Problem
}

// A Host is what the server gives a face.
type Host struct {
	Policy  *active.Policy
	Log     *slog.Logger
	Metrics *prometheus.Registry
	// whether the server takes requests: false before it serves, and while it shuts down
	Ready func() bool

	// Listen opens an address of the face, or takes the socket for it that was handed over from the
	// process before.
	Listen func(address string) (net.Listener, error)
}

// A Face serves requests by the active policy. Whoever opened it calls Serve once, in a goroutine
// of its own, and Close in the end.
type Face interface {
	Addresses() []string // where it listens, in the order of the policy

	// Serve serves until Shutdown or Close, and then returns nil. Any other error ends the server.
	Serve() error

	// Leave announces a shutdown. Clients that keep connections open are told to go elsewhere.
	// Where the process was replaced, another one accepts from the same sockets by now, and this
	// one accepts no more.
	Leave(replaced bool)

	// Draining returns how many connections are still open whose clients Leave has asked to reconnect
	// elsewhere.
	Draining() int

	// Shutdown lets requests in flight end. Its error is that of a context that ended first.
	Shutdown(ctx context.Context) error

	// Close ends all at once. It is called after Shutdown too, and may be called without Serve.
	Close() error
}

// A Ticker is a face with something to look at about once a second, like files that may have
// changed.
type Ticker interface{ Tick() }

// A Reopener is a face that writes a log, which it opens again after log rotation.
type Reopener interface{ Reopen() }

// HTTP is a Face for an http.Handler on one address.
type HTTP struct {
	server   *http.Server
	listener net.Listener
	address  string
}

// maxHeader bounds a request's line and header fields, in bytes.
const maxHeader = 64 << 10

// AnonymousLog takes addresses out of what net/http logs: one may be a client's.
func AnonymousLog(to slog.Handler) slog.Handler { return anonymous{to} }

type anonymous struct{ slog.Handler }

var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(:\d+)?|\[[0-9a-fA-F:.%a-z]+\]:\d+`)

func (a anonymous) Handle(ctx context.Context, r slog.Record) error {
	r.Message = address.ReplaceAllString(r.Message, "(address)")
	return a.Handler.Handle(ctx, r)
}

// NewHTTP returns a face that serves a handler on a listener. Its connections are not waited for
// before a shutdown: clients that keep some open are not told to go elsewhere.
func NewHTTP(l net.Listener, h http.Handler, log *slog.Logger) *HTTP {
	return &HTTP{listener: l, address: l.Addr().String(), server: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(AnonymousLog(log.Handler()), slog.LevelDebug),
	}}
}

// Addresses returns the one address.
func (f *HTTP) Addresses() []string { return []string{f.address} }

// Serve serves the handler.
func (f *HTTP) Serve() error {
	if err := f.server.Serve(f.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// leaveTime bounds how long Leave waits for requests in flight where the process was replaced.
const leaveTime = 5 * time.Second

// Leave ends the server where the process was replaced: a request that comes now belongs to the new
// one.
func (f *HTTP) Leave(replaced bool) {
	if replaced {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		_ = f.server.Shutdown(ctx) // what is still in flight then, Shutdown or Close ends
	}
}

// Draining returns 0: a shutdown waits for no idle connection.
func (f *HTTP) Draining() int { return 0 }

// Shutdown lets requests in flight end.
func (f *HTTP) Shutdown(ctx context.Context) error { return f.server.Shutdown(ctx) }

// Close ends the server at once, and closes the listener where Serve was not called.
func (f *HTTP) Close() error { return errors.Join(f.server.Close(), ignoreClosed(f.listener.Close())) }

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
