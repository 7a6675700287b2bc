package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
)

// newTransport returns the transport to the targets of an upstream. It closes idle connections
// after 50 s, before most servers would close them.
func newTransport(spec *Spec, dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	connect := spec.Timeouts.Connect
	if dial == nil {
		dial = dialer(connect)
	}
	t := &http.Transport{
		DialContext:            dial,
		TLSHandshakeTimeout:    connect,
		ResponseHeaderTimeout:  spec.Timeouts.Response,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        50 * time.Second,
		MaxIdleConnsPerHost:    spec.MaxIdle,
		MaxResponseHeaderBytes: 256 << 10,
		// the client's Accept-Encoding is passed on, so the response must not be decompressed here
		DisableCompression: true,
		Protocols:          protocols(spec.Protocol),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second, // a silent connection is probed
			PingTimeout:     15 * time.Second,
		},
	}
	if slices.ContainsFunc(spec.All(), func(t policy.Target) bool { return strings.HasPrefix(t.URL, "https:") }) {
		// The system's authorities are read once in a process. Read later, without descriptors, there
		// would be none for good.
		_, _ = x509.SystemCertPool()
	}
	if spec.TLS != nil {
		t.TLSClientConfig = spec.TLS.Clone()
	} else {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return t
}

func protocols(name string) *http.Protocols {
	p := new(http.Protocols)
	switch name {
	case "http1":
		p.SetHTTP1(true)
	case "h2":
		p.SetHTTP2(true)
	case "h2c":
		p.SetUnencryptedHTTP2(true)
	default:
		p.SetHTTP1(true)
		p.SetHTTP2(true)
	}
	return p
}

// sameTransport reports whether two policies connect to targets in the same way, so that
// connections can be kept.
func sameTransport(a, b *Spec) bool {
	return a.Protocol == b.Protocol && a.Digest == b.Digest && a.MaxIdle == b.MaxIdle &&
		a.Timeouts.Connect == b.Timeouts.Connect && a.Timeouts.Response == b.Timeouts.Response
}

// Reason returns an error in a few words, without addresses, because an address may be a client's.
func Reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
