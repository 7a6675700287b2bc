package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RedisOptions say how to start a Redis server. The zero value is a server on a free port that
// keeps nothing on disk.
type RedisOptions struct {
	Addr string // HOST:PORT to listen on; a free loopback address if empty
	Dir  string // for its files; it must exist. Empty: a temporary one, which Stop removes

	// write each command to disk before the reply, so that Start after Kill has all data again
	Persist bool
	TLS     bool // also listen for TLS, on another free port, with new certificates

	// Password of the default user, or of User. That user must be defined in Config; it is used for
	// Do and for checks whether the server is ready, and needs all rights.
	Password string
	User     string

	// Config has further lines of redis.conf, which come last: for example users, like "user alice
	// on >secret ~app:* +@all".
	Config []string
}

// A RedisServer is a Redis server, or a Sentinel, on one address. Start replaces its Process: while
// Start runs, no other goroutine may use the Process. All else is safe for concurrent use.
type RedisServer struct {
	*Process
	Addr string // HOST:PORT, without TLS
	Dir  string // where its files are
	TLS  *TLS   // nil without RedisOptions.TLS

	claims    []*Address // of its ports
	options   RedisOptions
	program   string // redis-server or redis-sentinel
	clustered bool
	busPort   string // of the cluster
	temporary bool   // whether Stop removes Dir
}

// String names the server in messages.
func (s *RedisServer) String() string { return s.program + " at " + s.Addr }

const redisConf = "redis.conf"

// Redis starts redis-server and waits until it responds.
func Redis(ctx context.Context, o RedisOptions) (*RedisServer, error) {
	return startRedis(ctx, &RedisServer{program: "redis-server", options: o})
}

// startRedis starts a server, on free addresses if it has none.
func startRedis(ctx context.Context, s *RedisServer) (*RedisServer, error) {
	if _, err := s.path(); err != nil {
		return nil, err
	}
	if err := s.directory(); err != nil {
		return nil, err
	}
	err := s.prepare()
	if err == nil {
		err = taken(func() error {
			if err := s.choose(); err != nil {
				return err
			}
			return s.launch(ctx)
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// taken tries again if a start fails because another process took an address, even for a moment.
func taken(try func() error) (err error) {
	for range 5 {
		if err = try(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

// the packages have the programs' names
func (s *RedisServer) path() (string, error) { return Program(s.program, s.program) }

func (s *RedisServer) directory() (err error) {
	if s.Dir = s.options.Dir; s.Dir == "" {
		s.temporary = true
		s.Dir, err = os.MkdirTemp("", "weir-"+s.program+"-")
		return err
	}
	s.Dir, err = filepath.Abs(s.Dir)
	return err
}

func (s *RedisServer) prepare() (err error) {
	if s.options.TLS {
		s.TLS, err = NewTLS(s.Dir)
	}
	return err
}

// choose finds free addresses and writes the configuration.
func (s *RedisServer) choose() error {
	s.release()
	free := func() (string, error) {
		addr, err := FreeAddress()
		if err != nil {
			return "", err
		}
		s.claims = append(s.claims, addr)
		return addr.Host, nil
	}
	var err error
	if s.Addr = s.options.Addr; s.Addr == "" {
		if s.Addr, err = free(); err != nil {
			return err
		}
	}
	if s.TLS != nil {
		if s.TLS.Addr, err = free(); err != nil {
			return err
		}
	}
	if s.clustered { // the default is the port plus 10000, which may be in use
		bus, err := free()
		if err != nil {
			return err
		}
		_, s.busPort, _ = net.SplitHostPort(bus)
	}
	conf, err := s.conf()
	if err != nil {
		return err
	}
	// it may have passwords
	return os.WriteFile(filepath.Join(s.Dir, redisConf), []byte(conf), 0o600)
}

// conf returns the configuration. Of two lines for the same setting Redis uses the last.
func (s *RedisServer) conf() (string, error) {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return "", err
	}
	lines := []string{"bind " + host, "port " + port, "dir " + strconv.Quote(s.Dir)}
	if s.program == "redis-server" {
		lines = append(lines, `save ""`, "repl-diskless-sync-delay 0") // otherwise a replica waits five seconds for others to come
	}
	if s.options.Persist {
		lines = append(lines, "appendonly yes", "appendfsync always")
	}
	if s.TLS != nil {
		_, port, _ := net.SplitHostPort(s.TLS.Addr)
		lines = append(lines, "tls-port "+port, "tls-auth-clients optional", "tls-ca-cert-file "+strconv.Quote(s.TLS.CAFile),
			"tls-cert-file "+strconv.Quote(s.TLS.ServerCert), "tls-key-file "+strconv.Quote(s.TLS.ServerKey))
	}
	if s.clustered {
		lines = append(lines, "cluster-enabled yes", "cluster-port "+s.busPort)
	}
	if s.options.Password != "" && s.options.User == "" {
		lines = append(lines, "requirepass "+strconv.Quote(s.options.Password))
	}
	return strings.Join(append(lines, s.options.Config...), "\n") + "\n", nil
}

// Start restarts a server after Kill, or after it was shut down: at the same addresses, with the
// same directory and certificates, and with the current redis.conf, which a Sentinel also writes.
// Without Persist its data is lost.
func (s *RedisServer) Start(ctx context.Context) error {
	if s.Process != nil {
		select {
		case <-s.Ended():
		default:
			return fmt.Errorf("%v still runs", s)
		}
	}
	return taken(func() error { return s.launch(ctx) })
}

func (s *RedisServer) launch(ctx context.Context) error {
	path, err := s.path()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, filepath.Join(s.Dir, redisConf))
	cmd.SysProcAttr = attributes(syscall.SIGKILL) // a paused process would not get SIGTERM
	p, err := start(syscall.SIGTERM, cmd)
	if err != nil {
		return err
	}
	p.Name = s.String()
	if err := p.until(ctx, func(ctx context.Context) error { return s.answers(ctx, p.Pid()) }); err != nil {
		return err
	}
	s.Process = p
	return nil
}

// aLook bounds one check of a server that is not ready: another process may accept there and never
// respond.
const aLook = 2 * time.Second

func (s *RedisServer) answers(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	if _, err := s.Do(ctx, "PING"); err != nil { // for example while the server loads its data
		return err
	}
	info, err := s.Info(ctx, "server")
	if err == nil && info["process_id"] != strconv.Itoa(pid) {
		err = fmt.Errorf("another process answers at %s: %s", s.Addr, info["process_id"])
	}
	return err
}

// Stop shuts the server down and removes its directory if that is a temporary one. It is no error
// if Kill ended the server. To shut it down and Start it again, use s.Process.Stop.
func (s *RedisServer) Stop() error {
	return errors.Join(s.Process.Stop(), s.remove())
}

// remove removes the files of a server that has ended.
func (s *RedisServer) remove() error {
	s.release()
	if !s.temporary {
		return nil
	}
	return os.RemoveAll(s.Dir)
}

// release ends the claims to its ports.
func (s *RedisServer) release() {
	for _, a := range s.claims {
		a.Release()
	}
	s.claims = nil
}

// DropData removes the data of a server with Persist, so that the next Start finds none. Call it
// only after the server has ended.
func (s *RedisServer) DropData() error {
	return errors.Join(os.RemoveAll(filepath.Join(s.Dir, "appendonlydir")), os.RemoveAll(filepath.Join(s.Dir, "dump.rdb")))
}

// URL returns the server's URL with its user and password: redis://...
func (s *RedisServer) URL() string { return s.url("redis", s.Addr) }

// TLSURL returns the server's URL for TLS: rediss://... Its clients need TLS.CA too.
func (s *RedisServer) TLSURL() string { return s.url("rediss", s.TLS.Addr) }

func (s *RedisServer) url(scheme, addr string) string {
	u := url.URL{Scheme: scheme, Host: addr}
	if s.options.Password != "" {
		u.User = url.UserPassword(s.options.User, s.options.Password)
	}
	return u.String()
}

// Conn connects to the server, and authenticates if RedisOptions has a password.
func (s *RedisServer) Conn(ctx context.Context) (*RedisConn, error) {
	c, err := DialRedis(ctx, s.Addr, nil)
	if err != nil || s.options.Password == "" {
		return c, err
	}
	auth := []string{"AUTH", s.options.Password}
	if s.options.User != "" {
		auth = []string{"AUTH", s.options.User, s.options.Password}
	}
	if _, err := c.Do(ctx, auth...); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Do sends one command on a connection of its own. The reply is as with RedisConn.Do. Commands
// about their own connection need Conn: WAIT, for example, waits for the writes of its connection.
func (s *RedisServer) Do(ctx context.Context, args ...string) (any, error) {
	c, err := s.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, args...)
}

// Info returns the fields of a section of INFO, like "commandstats".
func (s *RedisServer) Info(ctx context.Context, section string) (map[string]string, error) {
	return s.fields(ctx, "INFO", section)
}

// fields sends a command and returns the fields of its reply, lines of NAME:VALUE.
func (s *RedisServer) fields(ctx context.Context, args ...string) (map[string]string, error) {
	v, err := s.Do(ctx, args...)
	if err != nil {
		return nil, err
	}
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("%s: %v", args[0], v)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
