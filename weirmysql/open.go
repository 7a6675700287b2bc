package weirmysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/weirkv"
)

// A Store is a weir.Store in MariaDB or MySQL.
type Store struct {
	*weirkv.Store
	kv *KV
}

// Sweep removes all rows that have expired: see KV.Sweep.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) { return s.kv.Sweep(ctx) }

// Close ends the Store and closes its connections.
func (s *Store) Close() error {
	err := s.Store.Close()
	return errors.Join(err, s.kv.Close(), s.kv.db.Close())
}

// Open opens a Store at a URL: see ParseURL. It connects with the first call, and makes the table and procedures if they are not
// there. A server that cannot be reached is no error of Open.
func Open(text string, o weirkv.Options) (*Store, error) {
	a, err := ParseURL(text)
	if err != nil {
		return nil, err
	}
	if err := a.read(); err != nil {
		return nil, fmt.Errorf("weirmysql: %w", err)
	}
	to, err := mysql.NewConnector(a.config)
	if err != nil {
		return nil, fmt.Errorf("weirmysql: %w", err)
	}
	db := sql.OpenDB(connector{to})
	db.SetMaxOpenConns(a.connections)
	db.SetMaxIdleConns(a.connections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	kv := newKV(db)
	kv.migrate, kv.idle = a.migrate, a.connections
	s, err := weirkv.New(kv, o)
	if err != nil {
		return nil, errors.Join(err, kv.Close(), db.Close())
	}
	kv.tasks.Go(kv.sweep)
	return &Store{s, kv}, nil
}

// A connector prepares each session for what the driver needs, whatever the server's defaults are: statements are
// transactions of their own, no read sees what is not committed, and none waits long for a row of a client that
// was cut off.
type connector struct{ driver.Connector }

var session = []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET autocommit = 1, innodb_lock_wait_timeout = 2"}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range session {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, s, nil); err != nil { // all connections of the driver are such
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// An Address is what a URL says.
type Address struct {
	Host     string // HOST:PORT, or the path of a socket
	Database string

	config       *mysql.Config
	migrate      bool
	connections  int
	passwordFile string
	caFile       string
}

// errURL says how a URL is written. It holds no part of it, which may be a password.
var errURL = errors.New("weirmysql: write the URL like mysql://weir:password@10.0.0.1:3306/limits, or mysql+tls:// for TLS")

const (
	defaultConnections = 16
	dialTimeout        = 5 * time.Second
	maxFile            = 1 << 20
)

// schemes are those of URLs, and whether they are for TLS.
var schemes = map[string]bool{"mysql": false, "mariadb": false, "mysql+tls": true, "mariadb+tls": true}

// Schemes returns the schemes of URLs.
func Schemes() []string { return []string{"mysql", "mariadb", "mysql+tls", "mariadb+tls"} }

// ParseURL reads a URL:
//
//	mysql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE[?PARAMETER=VALUE&...]
//
// mariadb is the same as mysql; mysql+tls and mariadb+tls are for TLS, with the server verified. Parameters are
// socket (the path of a Unix socket, in place of the host), password_file, ca_file (default: the authorities of
// the system), server_name, connections (how many at most; default: 16), and migrate (make the table and procedures if they are not
// there; default: true). It reads no file. Errors hold no part of the URL but names of parameters.
func ParseURL(text string) (a Address, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return a, errURL
	}
	secure, known := schemes[strings.ToLower(u.Scheme)]
	a.Database = strings.TrimPrefix(u.Path, "/")
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil || !known || strings.Contains(a.Database, "/") || u.Fragment != "" || u.Host+a.Database == "":
		return a, errURL
	case a.Database == "":
		return a, errors.New("weirmysql: the URL names no database: it comes after the address, as /limits")
	case strings.Contains(u.Host, ","):
		return a, errors.New("weirmysql: the URL has several addresses: write one, which leads to the server that can be written")
	}
	a.config, a.connections, a.migrate = mysql.NewConfig(), defaultConnections, true
	c := a.config
	c.User, c.DBName, c.Timeout, c.Logger = u.User.Username(), a.Database, dialTimeout, &mysql.NopLogger{}
	c.Passwd, _ = u.User.Password()
	if socket := query.Get("socket"); socket != "" {
		a.Host, c.Net = socket, "unix"
	} else if u.Hostname() == "" {
		return a, errURL
	} else {
		port := u.Port()
		if port == "" {
			port = "3306"
		}
		a.Host, c.Net = net.JoinHostPort(u.Hostname(), port), "tcp"
	}
	c.Addr = a.Host
	if secure {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	}
	for name := range query {
		if err := a.set(name, query.Get(name)); err != nil {
			return a, fmt.Errorf("weirmysql: %w", err)
		}
	}
	return a, nil
}

// set reads a parameter.
func (a *Address) set(name, value string) (err error) {
	switch name {
	case "socket":
	case "password_file":
		a.passwordFile = value
	case "ca_file", "server_name":
		if a.config.TLS == nil {
			return fmt.Errorf("%s is for TLS: begin the URL with mysql+tls://", name)
		}
		if name == "ca_file" {
			a.caFile = value
		} else {
			a.config.TLS.ServerName = value
		}
	case "migrate":
		if a.migrate, err = strconv.ParseBool(value); err != nil {
			return errors.New("migrate: write true or false")
		}
	case "connections":
		if a.connections, err = strconv.Atoi(value); err != nil || a.connections < 1 || a.connections > 1000 {
			return errors.New("connections: write a number from 1 to 1000")
		}
	default:
		return fmt.Errorf("the parameter %.40q is unknown: there are ca_file, connections, migrate, password_file, server_name and socket", name)
	}
	return nil
}

// read reads the files that a URL names.
func (a *Address) read() error {
	if a.passwordFile != "" {
		text, err := regular.Read(a.passwordFile, maxFile)
		if err != nil {
			return fmt.Errorf("password_file: %w", err)
		}
		a.config.Passwd = strings.TrimRight(string(text), "\r\n")
	}
	if a.caFile == "" {
		return nil
	}
	text, err := regular.Read(a.caFile, maxFile)
	if err != nil {
		return fmt.Errorf("ca_file: %w", err)
	}
	a.config.TLS.RootCAs = x509.NewCertPool()
	if !a.config.TLS.RootCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("ca_file: %s has no certificate in PEM", a.caFile)
	}
	return nil
}
