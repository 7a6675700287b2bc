package listen

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
)

// maxFile bounds a file of certificates.
const maxFile = 1 << 20

// Certificates are the certificates of a listener. They can be replaced while it serves: later
// handshakes use the new ones. All methods are safe for concurrent use.
type Certificates struct{ current atomic.Pointer[certificates] }

// certificates are never changed.
type certificates struct {
	config *tls.Config
	expiry []Expiry
}

// An Expiry is the time at which a certificate expires.
type Expiry struct {
	File     string // as the policy names it
	NotAfter time.Time
}

// LoadCertificates reads the files that a policy names; path turns such a name into a path.
func LoadCertificates(t *policy.TLS, path func(name string) string) (*Certificates, error) {
	c := &Certificates{}
	loaded, err := load(t, path)
	if err != nil {
		return nil, err
	}
	c.current.Store(loaded)
	return c, nil
}

// Replace uses the certificates of next from now on.
func (c *Certificates) Replace(next *Certificates) { c.current.Store(next.current.Load()) }

// Expiries returns when the certificates expire, in the order of the policy.
func (c *Certificates) Expiries() []Expiry { return c.current.Load().expiry }

// Config returns a configuration whose handshakes use the newest certificates, for a server that does
// not accept from a Listener. protocols are those that it speaks.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.config().Clone()
			config.NextProtos = protocols
			return config, nil
		},
	}
}

func (c *Certificates) config() *tls.Config { return c.current.Load().config }

func load(t *policy.TLS, path func(name string) string) (*certificates, error) {
	read := func(name string) ([]byte, error) { return regular.Read(path(name), maxFile) }
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if t.MinVersion == "1.3" {
		config.MinVersion = tls.VersionTLS13
	}
	loaded := &certificates{config: config}
	for _, c := range t.Certificates {
		chain, err := read(c.Cert)
		if err != nil {
			return nil, err
		}
		key, err := read(c.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("%s with the key %s: %w", c.Cert, c.Key, err)
		}
		config.Certificates = append(config.Certificates, pair)
		loaded.expiry = append(loaded.expiry, Expiry{File: c.Cert, NotAfter: pair.Leaf.NotAfter})
	}
	if len(config.Certificates) == 0 {
		return nil, errors.New("there is no certificate")
	}
	if t.ClientCA != "" {
		authorities, err := read(t.ClientCA)
		if err != nil {
			return nil, err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s: there is no certificate in it", t.ClientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if t.ClientAuth == "optional" {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
		// A session ticket would admit a client whose authority is no longer trusted.
		config.SessionTicketsDisabled = true
	}
	return loaded, nil
}

// Version is a hash of the files that a policy names: it changes when one of them does. Files that
// cannot be read have a version, too.
func Version(t *policy.TLS, path func(name string) string) (version [sha256.Size]byte) {
	hash := sha256.New()
	add := func(name string) {
		data, err := regular.Read(path(name), maxFile)
		if err != nil {
			data = nil
		}
		fmt.Fprintf(hash, "%d %d\n", len(data), len(name))
		hash.Write(data)
	}
	for _, c := range t.Certificates {
		add(c.Cert)
		add(c.Key)
	}
	if t.ClientCA != "" {
		add(t.ClientCA)
	}
	hash.Sum(version[:0])
	return version
}
