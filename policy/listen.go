package policy

import (
	"net/netip"
	"time"
)

// Listen says where the faces of a server listen, and the bounds for clients. A face without an address is not served.
type Listen struct {
	Gateway []Listener
	Bounds  Bounds
	Admin   string
	Others  []Endpoint // of all other faces, in the order of the policy file
}

// An Endpoint is a face with its address, written listen.FACE: ADDRESS.
type Endpoint struct{ Face, Address string }

// String is the endpoint as it is written.
func (e Endpoint) String() string { return e.Face + ": " + e.Address }

// Faces returns the names of the faces that have an address.
func (l *Listen) Faces() (names []string) {
	if len(l.Gateway) > 0 {
		names = append(names, "gateway")
	}
	if l.Admin != "" {
		names = append(names, "admin")
	}
	for _, e := range l.Others {
		names = append(names, e.Face)
	}
	return names
}

// Address returns the address of a face other than the gateway, which may have several; empty for none.
func (l *Listen) Address(face string) string {
	if face == "admin" {
		return l.Admin
	}
	for _, e := range l.Others {
		if e.Face == face {
			return e.Address
		}
	}
	return ""
}

// A Listener is one address of the gateway.
type Listener struct {
	Address       string         // HOST:PORT; without a host, all addresses of this machine
	TLS           *TLS           // nil for none
	H2C           bool           // HTTP/2 without TLS, for clients with prior knowledge; never with TLS
	ProxyProtocol []netip.Prefix // load balancers that may connect, with the PROXY protocol; default: no PROXY protocol
	RedirectHTTPS bool           // redirect every request to the first address with TLS
}

// TLS is the certificates of a listener, and the clients that it accepts. Files are relative to the policy file.
type TLS struct {
	Certificates []Certificate // chosen by the name that a client asks for (SNI), or the first
	ClientCA     string        // a file with the authorities of client certificates; empty: no client certificates
	ClientAuth   string        // "required" or "optional"; default: required
	MinVersion   string        // "1.2" or "1.3"; default: 1.2
}

// A Certificate is the names of two files in PEM: a chain, the certificate first, and its key.
type Certificate struct{ Cert, Key string }

// Bounds are the bounds for connections and requests. A zero is the default; without a named default it is no bound.
type Bounds struct {
	MaxHeader            int64         // bytes of a request line and its header; default: 65536
	MaxFields            int           // header fields of a request; default: 100
	MaxBody              int64         // bytes of a body; a route's MaxBody replaces it
	MinBodyRate          int64         // bytes per second of a body, once it has taken BodyTimeout; default: 500
	MaxConnections       int           // open at once
	MaxClientConnections int           // of one client address, /64 for IPv6; those of trusted proxies are not counted
	MaxStreams           int           // of one HTTP/2 connection; default: 100
	MaxRequests          int           // of one connection
	HeaderTimeout        time.Duration // for a TLS handshake, and for a request's header; default: 10 s
	BodyTimeout          time.Duration // for a body slower than MinBodyRate; default: 30 s
	WriteTimeout         time.Duration // for a client that reads nothing of its response; default: 1 min
	IdleTimeout          time.Duration // between two requests; default: 2 min
}

// WithDefaults returns the bounds with defaults filled in.
func (b Bounds) WithDefaults() Bounds {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&b.HeaderTimeout, 10*time.Second)
	or(&b.BodyTimeout, 30*time.Second)
	or(&b.WriteTimeout, time.Minute)
	or(&b.IdleTimeout, 2*time.Minute)
	if b.MaxHeader == 0 {
		b.MaxHeader = 64 << 10
	}
	if b.MaxFields == 0 {
		b.MaxFields = 100
	}
	if b.MinBodyRate == 0 {
		b.MinBodyRate = 500
	}
	if b.MaxStreams == 0 {
		b.MaxStreams = 100
	}
	return b
}

// An AccessLog says where the line for each request is written. Without a file there is no access log.
type AccessLog struct {
	File   string // a path, "stdout" or "stderr"
	Format string // "common", "combined" or "json"; empty means combined
}
