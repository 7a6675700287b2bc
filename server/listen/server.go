package listen

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirflow/weir/server/plain"
)

// Front returns what serves the connections of the port's listeners, which its Serve is given one after another. Plain requests of HTTP/1.1 it
// serves by itself; all others net/http gets, behind a guard. known is for ConnContext, beside that of the port; it may be nil.
// What net/http has to say goes to the log at the level of debugging.
func (p *Port) Front(h http.Handler, logTo slog.Handler, known func(context.Context, net.Conn) context.Context) *plain.Server {
	s := p.behind(h, logTo)
	if known != nil {
		s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return known(ConnContext(ctx, c), c) }
	}
	return &plain.Server{HTTP: s}
}

// behind returns what serves the connections that are not plain.
func (p *Port) behind(h http.Handler, logTo slog.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // the guard lets it through where the listener has it
	b := &p.bounds
	return &http.Server{
		Handler:           p.Handler(h),
		ReadHeaderTimeout: b.HeaderTimeout,
		IdleTimeout:       b.IdleTimeout,
		MaxHeaderBytes:    int(b.MaxHeader),
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: b.MaxStreams,
			SendPingTimeout:      time.Minute, // a client that is gone without a word is found out
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     b.WriteTimeout,
		},
		ConnContext: ConnContext,
		ErrorLog:    slog.NewLogLogger(logTo, slog.LevelDebug),
	}
}
