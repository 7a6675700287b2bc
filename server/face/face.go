// Package face is the interface between the server and its faces. A face translates between a
// protocol and the active policy: the gateway for HTTP, the admin API for operators. A face is a
// package of its own below server, and a line in server/faces.go.
package face

import (
	"context"
	"log/slog"
	"net"

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

	// Complete adds to a policy what other files have that it names, such as limits; nil where there is
	// nothing to add. It is called only where the policy file has the word, and for a file that was
	// completed before, too.
	Complete func(file *policyfile.File) (*policyfile.File, error)
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

	// Clock replaces the clocks of limits that clients bring, for tests: nanoseconds of Unix time. nil for
	// the real ones.
	Clock func() int64
}

// A Face serves requests by the active policy. The server calls Serve once, in a goroutine of its
// own, and Close in the end.
type Face interface {
	Addresses() []string // where it listens, in the order of the policy

	// Serve serves until Shutdown or Close, and then returns nil. Any other error ends the server.
	Serve() error

	// Leave announces a shutdown. Clients that keep connections open are asked to close them.
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

// A Ticker is a face that the server calls about once a second, for example to look for changed
// files.
type Ticker interface{ Tick() }

// A Reopener is a face that writes a log, which it opens again after log rotation.
type Reopener interface{ Reopen() }
