package listen

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirflow/weir/server/plain"
)

// Front returns the server of the port's listeners. Package plain serves plain requests of
// HTTP/1.1, and net/http all others, behind a guard. known is an additional ConnContext; it may be
// nil. Messages of net/http are logged at debug level.
func (p *Port) Front(h http.Handler, logTo slog.Handler, known func(context.Context, net.Conn) context.Context) *plain.Server {
	s := p.behind(h, logTo)
	if known != nil {
		s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return known(ConnContext(ctx, c), c) }
	}
	return &plain.Server{HTTP: s}
}

// behind returns the server of the connections that are not plain.
func (p *Port) behind(h http.Handler, logTo slog.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // the guard passes it on if the listener allows it
	b := &p.bounds
	return &http.Server{
		Handler:           p.Handler(h),
		ReadHeaderTimeout: b.HeaderTimeout,
		IdleTimeout:       b.IdleTimeout,
		MaxHeaderBytes:    int(b.MaxHeader),
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: b.MaxStreams,
			SendPingTimeout:      time.Minute, // finds clients that disappeared without closing
			PingTimeout:          15 * time.Second,
			WriteByteTimeout:     b.WriteTimeout,
		},
		ConnContext: ConnContext,
		ErrorLog:    slog.NewLogLogger(logTo, slog.LevelDebug),
	}
}
