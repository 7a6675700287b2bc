package listen

import (
	"log/slog"
	"net/http"
	"time"
)

// Server returns what serves the connections of the port's listeners. Its Serve is given Strict listeners, one after another.
// What net/http has to say goes to the log at the level of debugging.
func (p *Port) Server(h http.Handler, logTo slog.Handler) *http.Server {
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
