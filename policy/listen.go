package policy

import (
	"net/netip"
	"time"
)

// Listen says where the faces of a server listen, and what those who connect may do. A face without an address is not served.
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
	Address       string         // HOST:PORT; no host is all addresses of this machine
	TLS           *TLS           // nil is plain
	H2C           bool           // HTTP/2 without TLS, for clients that know beforehand; never with TLS
	ProxyProtocol []netip.Prefix // who may connect, and tells the client's address first; none is that nobody does
	RedirectHTTPS bool           // every request is sent to the first address with TLS
}

// TLS is how a listener proves who it is, and whom it lets in. Files are looked for beside the policy file.
type TLS struct {
	Certificates []Certificate // the one for the name that a client asks for; the first where none is
	ClientCA     string        // a file with the authorities of clients; empty asks clients for no certificate
	ClientAuth   string        // "required" or "optional"; empty means required
	MinVersion   string        // "1.2" or "1.3"; empty means 1.2
}

// A Certificate is the names of two files in PEM: a chain, the certificate first, and its key.
type Certificate struct{ Cert, Key string }

// Bounds are what those who connect may do. A zero is the default that is named; where none is, there is no bound.
type Bounds struct {
	MaxHeader            int64         // bytes of a request line and its header fields; 65536
	MaxFields            int           // header fields of a request; 100
	MaxBody              int64         // bytes of a body, unless its route says otherwise
	MinBodyRate          int64         // bytes a second at which a body comes at least, once it has taken BodyTimeout; 500
	MaxConnections       int           // that are open at once
	MaxClientConnections int           // of one client address, /64 for IPv6; those of trusted proxies are not counted
	MaxStreams           int           // of one connection of HTTP/2; 100
	MaxRequests          int           // of one connection
	HeaderTimeout        time.Duration // for a TLS handshake, and for a request's header; 10 s
	BodyTimeout          time.Duration // for a body that comes slower than MinBodyRate; 30 s
	WriteTimeout         time.Duration // for a client that takes nothing of its answer; 1 min
	IdleTimeout          time.Duration // between two requests; 2 min
}

// WithDefaults is the bounds with each default in its place.
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

// An AccessLog says where a line for each request goes. Without a file none is written.
type AccessLog struct {
	File   string // a path, "stdout" or "stderr"
	Format string // "common", "combined" or "json"; empty means combined
}
