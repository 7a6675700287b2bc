package weirrueidis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/weirredis"
)

// A Store is a weirredis.Store with a client of its own.
type Store struct {
	*weirredis.Store
	link *link
}

// Open returns a Store at a URL, whose forms are those of weirredis.ParseURL: one server, Sentinel, or a Cluster, with TLS or without. It connects in the
// background, and again whenever the connection is lost: a server that is not there yet is no error here, but one of calls until it is. Ready
// tells. Close ends the Store and then its client.
//
// The error says what is wrong with the URL, or with the files that it names, which are read once, here; it never has a password.
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
	o.Cluster = addr.Mode == weirredis.Cluster
	s := &Store{link: l}
	if s.Store, err = weirredis.New(l, o); err != nil {
		l.close()
		return nil, err
	}
	l.start()
	return s, nil
}

// Ready waits until the client has been connected once. When the context ends before that, the error says why it could not be so far.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.link.get(ctx)
	return err
}

// Connected reports whether the client has been connected once. Whether the server answers now, only a call can tell.
func (s *Store) Connected() bool {
	select {
	case <-s.link.ready:
		return true
	default:
		return false
	}
}

// Close ends what is under way, and closes the client.
func (s *Store) Close() error {
	err := s.Store.Close()
	s.link.close()
	return err
}

const (
	defaultDialTimeout = time.Second
	pingEvery          = 500 * time.Millisecond // a connection that is idle is asked whether it lives: so a server that went without a word is noticed
	pingTimeout        = time.Second
	refreshEvery       = 2 * time.Second // sentinels are asked who is the master, in case that a message of theirs was missed
	bufferSize         = 64 << 10
	defaultName        = "weir"
)

// clientOption is an address as rueidis reads it, and what is fit for us: one connection for each server, as a Store sends few and large calls;
// no cache at the client, and no command that is sent twice.
func clientOption(a weirredis.Address) (rueidis.ClientOption, error) {
	o := rueidis.ClientOption{
		InitAddress:         a.Hosts,
		SelectDB:            a.DB,
		Username:            a.User,
		ClientName:          a.ClientName,
		Dialer:              net.Dialer{Timeout: a.DialTimeout, KeepAlive: pingEvery},
		ConnWriteTimeout:    pingTimeout,
		DisableCache:        true,
		DisableRetry:        true, // it would only repeat what reads: nothing of ours
		ForceSingleClient:   a.Mode == weirredis.Single,
		AlwaysPipelining:    true, // else a call that ends early closes its connection
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
	if a.Mode == weirredis.Sentinel {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: a.Master, Dialer: o.Dialer, TLSConfig: o.TLSConfig, Username: a.SentinelUser, ClientName: o.ClientName,
			TopologyRefreshInterval: refreshEvery,
		}
		o.Sentinel.Password, err = secret(a.SentinelPassword, a.SentinelPasswordFile, "sentinel_password_file")
	}
	return o, err
}

// secret is a password, or what a file holds, without the end of its line.
func secret(password, file, parameter string) (string, error) {
	if file == "" {
		return password, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("weirrueidis: %s: %w", parameter, err)
	}
	password = strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("weirrueidis: %s: %s is empty: put the password into it", parameter, file)
	}
	return password, nil
}

// tlsConfig is how a server is verified, and what it is shown. Where a URL names no server, each host that is connected to is verified.
func tlsConfig(a weirredis.Address) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("weirrueidis: ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("weirrueidis: ca_file: %s holds no certificate in PEM", a.CAFile)
		}
	}
	if a.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("weirrueidis: cert_file and key_file: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
