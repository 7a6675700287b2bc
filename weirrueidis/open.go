package weirrueidis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/weirredis"
)

// A Store is a weirredis.Store with a client of its own.
type Store struct {
	*weirredis.Store
	link *link
}

// Open returns a Store at a URL, in one of the forms of weirredis.ParseURL: one server, Sentinel,
// or a Cluster, with or without TLS. It connects in the background, and reconnects whenever the
// connection is lost. A server that cannot be reached is no error of Open: calls fail until it can
// be, and Ready waits for it. Close closes the Store and then its client.
//
// The error says what is wrong with the URL or with the files that it names, which are read once,
// by Open. It never holds a password.
func Open(url string, o weirredis.Options) (*Store, error) {
	addr, err := weirredis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	option, err := clientOption(addr)
	if err != nil {
		return nil, err
	}
	l := newLink(addr, option)
	if addr.Mode == weirredis.Sentinel {
		if l.sentinel, err = sentinelOption(addr, l.option); err != nil {
			return nil, err
		}
	}
	o.Cluster = addr.Mode == weirredis.Cluster
	s := &Store{link: l}
	if s.Store, err = weirredis.New(l, o); err != nil {
		l.close()
		return nil, err
	}
	l.start()
	return s, nil
}

// Ready waits until the client has connected for the first time. If the context ends first, the
// error says why it could not connect.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.link.get(ctx)
	return err
}

// Connected reports whether the client has ever connected. Only a call can find out whether the
// server answers now.
func (s *Store) Connected() bool {
	select {
	case <-s.link.ready:
		return true
	default:
		return false
	}
}

// Close ends calls in flight, and closes the client.
func (s *Store) Close() error {
	err := s.Store.Close()
	s.link.close()
	return err
}

const (
	defaultDialTimeout = time.Second
	// keep-alive of idle connections, by which a server that vanished is noticed
	pingEvery   = 500 * time.Millisecond
	pingTimeout = time.Second
	bufferSize  = 64 << 10
	defaultName = "weir"
	maxFile     = 1 << 20 // of a password, a certificate or a key
)

// clientOption returns the options of rueidis for an address: one connection for each server, as a
// Store sends few and large calls; no client-side cache; and no command is sent twice.
func clientOption(a weirredis.Address) (rueidis.ClientOption, error) {
	o := rueidis.ClientOption{
		InitAddress:         a.Hosts,
		SelectDB:            a.DB,
		Username:            a.User,
		ClientName:          a.ClientName,
		Dialer:              net.Dialer{Timeout: a.DialTimeout, KeepAlive: pingEvery},
		ConnWriteTimeout:    pingTimeout,
		DisableCache:        true,
		DisableRetry:        true,                        // rueidis repeats only commands that read; a Store has none
		ForceSingleClient:   a.Mode != weirredis.Cluster, // with Sentinel, each master has a client of its own
		AlwaysPipelining:    true,                        // otherwise a call that ends early closes its connection
		PipelineMultiplex:   -1,
		RingScaleEachConn:   8,
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
	}
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = defaultDialTimeout
	}
	if o.ClientName == "" {
		o.ClientName = defaultName
	}
	if a.Socket != "" {
		o.InitAddress = []string{a.Socket}
	}
	var err error
	if o.Password, err = secret(a.Password, a.PasswordFile, "password_file"); err != nil {
		return o, err
	}
	if a.TLS {
		if o.TLSConfig, err = tlsConfig(a); err != nil {
			return o, err
		}
	}
	return o, err
}

// sentinelOption returns the options for one sentinel, of those for its master.
func sentinelOption(a weirredis.Address, o rueidis.ClientOption) (rueidis.ClientOption, error) {
	o.SelectDB, o.Username = 0, a.SentinelUser
	var err error
	o.Password, err = secret(a.SentinelPassword, a.SentinelPasswordFile, "sentinel_password_file")
	return o, err
}

// secret returns a password, or the content of a file without its line end.
func secret(password, file, parameter string) (string, error) {
	if file == "" {
		return password, nil
	}
	text, err := regular.Read(file, maxFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w", parameter, err)
	}
	password = strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s: %s is empty: put the password into it", parameter, file)
	}
	return password, nil
}

// tlsConfig returns the TLS settings of an address. Without server_name, each host that is
// connected to is verified by its own name.
func tlsConfig(a weirredis.Address) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if a.CAFile != "" {
		pem, err := regular.Read(a.CAFile, maxFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM", a.CAFile)
		}
	}
	if a.CertFile != "" {
		cert, err := keyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := regular.Read(certFile, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := regular.Read(keyFile, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
