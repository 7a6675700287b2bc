package policy

import (
	"net/netip"
	"time"
)

// Listen says where the faces of a server listen, and the bounds for clients. A face is a service
// of the process, such as the gateway or the admin pages. A face without an address is off.
type Listen struct {
	Gateway []Listener
	Bounds  Bounds
	Admin   string
	Others  []Endpoint // all other faces, in the order of the policy file
}

// An Endpoint is a face with its address, and who may use it. It is written listen.FACE: ADDRESS, or
// as a map. Files are relative to the policy file.
type Endpoint struct {
	Face, Address string
	TLS           *TLS   // nil for none
	Tokens        string // a file with the tokens of clients; empty: clients need none
	Users         string // a file with users and their passwords; empty: clients need none
	// other machines may connect although nothing tells one client from another: the network is trusted
	Insecure       bool
	MaxConnections int  // open at once; default: 20000
	RLS            RLS  // of listen.rls only
	RESP           RESP // of listen.resp only
	HTTP           HTTP // of listen.http only
}

// HTTP holds the settings of listen.http, the limit service over HTTP.
type HTTP struct {
	ClientLimits ClientLimits
}

// ClientLimits says whether clients may bring limits of their own, and where their keys are.
type ClientLimits struct {
	On       bool
	Store    string // empty: in the memory of this process
	MaxKeys  int    // in memory; default: 100000
	WhenFull string // for new keys beyond MaxKeys: "evict" or "refuse"; default: evict
}

// RESP holds the settings of listen.resp, the Redis protocol.
type RESP struct {
	Store    string // where CL.THROTTLE keeps its keys; empty: in the memory of this process
	MaxKeys  int    // of CL.THROTTLE in memory; default: 1048576
	WhenFull string // for new keys beyond MaxKeys: "evict" or "refuse"; default: evict
}

// RLS holds the settings of listen.rls, Envoy's rate limit service.
type RLS struct {
	// a file or a folder of envoyproxy/ratelimit's YAML; empty: descriptors name limits of the policy
	Envoy        string
	MergeDomains bool   // a domain may be in several files
	Store        string // where the counters of Envoy's files are; empty: in the memory of this process
	MaxKeys      int    // of these counters in memory, for each unit; default: 1048576
	ShadowMode   bool   // no request is over its limit
	QuotaMode    bool   // every rule has quota_mode
	// the names of response headers with the limit, what remains, and the seconds until the reset; empty
	// for none
	HeaderLimit, HeaderRemaining, HeaderReset string
	DynamicMetadata                           bool          // responses carry the request as dynamic metadata
	HTTP                                      string        // the address of /json, /healthcheck and /rlconfig; empty for none
	MaxConnectionAge                          time.Duration // clients are asked to reconnect then; default: 24 h
}

// String returns the endpoint in the form FACE: ADDRESS.
func (e Endpoint) String() string { return e.Face + ": " + e.Address }

// FaceNames returns the names of the faces that have an address.
func (l *Listen) FaceNames() (names []string) {
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

// Endpoint returns the endpoint of a face other than the gateway and admin; false for none.
func (l *Listen) Endpoint(face string) (Endpoint, bool) {
	for _, e := range l.Others {
		if e.Face == face {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Address returns the address of a face other than the gateway, which may have several. It is
// empty for none.
func (l *Listen) Address(face string) string {
	if face == "admin" {
		return l.Admin
	}
	e, _ := l.Endpoint(face)
	return e.Address
}

// A Listener is one address of the gateway.
type Listener struct {
	Address string // HOST:PORT; without a host, all addresses of this machine
	TLS     *TLS   // nil for none
	// HTTP/2 without TLS, for clients with prior knowledge; never with TLS
	H2C bool
	// load balancers that may connect, with the PROXY protocol; default: no PROXY protocol
	ProxyProtocol []netip.Prefix
	RedirectHTTPS bool // redirect every request to the first address with TLS
	// the hosts for which requests are redirected, like shop.example or *.shop.example; default: all
	RedirectHosts []string
}

// TLS holds the certificates of a listener, and which client certificates it accepts. Files are
// relative to the policy file.
type TLS struct {
	Certificates []Certificate // chosen by the name that a client asks for (SNI), or the first
	// a file with the authorities of client certificates; empty: no client certificates
	ClientCA   string
	ClientAuth string // "required" or "optional"; default: required
	MinVersion string // "1.2" or "1.3"; default: 1.2
}

// A Certificate names two PEM files: a chain, which begins with the certificate, and its key.
type Certificate struct{ Cert, Key string }

// Bounds limit connections and requests. Zero means the default; a bound without a named default is
// off.
type Bounds struct {
	MaxHeader      int64 // bytes of the request line and the header; default: 65536
	MaxFields      int   // header fields of a request; default: 100
	MaxBody        int64 // bytes of a body; a route's MaxBody replaces it
	MinBodyRate    int64 // bytes per second of a body, once it has taken BodyTimeout; default: 500
	MaxConnections int   // open at once
	// of one client address, /64 for IPv6; connections of trusted proxies do not count
	MaxClientConnections int
	MaxStreams           int // of one HTTP/2 connection; default: 100
	MaxRequests          int // of one connection
	// for a TLS handshake, and for a request's header; default: 10 s
	HeaderTimeout time.Duration
	BodyTimeout   time.Duration // for a body slower than MinBodyRate; default: 30 s
	// for a client that reads nothing of its response; default: 1 min
	WriteTimeout time.Duration
	IdleTimeout  time.Duration // between two requests; default: 2 min
}

// WithDefaults returns the bounds with the defaults filled in.
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

// An AccessLog says where the log line of each request goes. Without a file, there is no access
// log.
type AccessLog struct {
	File   string // a path, "stdout" or "stderr"
	Format string // "common", "combined" or "json"; default: combined
}
