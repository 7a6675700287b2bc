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

// RedisOptions say how to start a Redis server. The zero value is one on a free port that keeps
// nothing on disk.
type RedisOptions struct {
	Addr string // HOST:PORT to listen on; a free loopback address if empty
	Dir  string // for its files, which has to exist; a temporary one, that Stop removes, if empty

	// write each command to disk before it is answered, so that Start after Kill has all the data
	// again
	Persist bool
	TLS     bool // listen for TLS too, on another free port, with certificates made for it

	// Password is that of the default user, if it is to have one. With User it is that of another
	// one, who is in Config: for Do, and for what is asked to see whether the server is ready. He
	// has to be allowed everything.
	Password string
	User     string

	// Config are lines of redis.conf, which come last: users, like "user alice on >secret ~app:*
	// +@all", and what else is to be different.
	Config []string
}

// A RedisServer is a Redis server, or a Sentinel, on one address. Start changes which Process it
// is: while it runs, what is the Process's may not be used by others. The rest may, by any number
// of goroutines.
type RedisServer struct {
	*Process
	Addr string // HOST:PORT, where it listens without TLS
	Dir  string // where its files are
	TLS  *TLS   // nil without RedisOptions.TLS

	claims    []*Address // of its ports
	options   RedisOptions
	program   string // redis-server or redis-sentinel
	clustered bool
	busPort   string // of the cluster
	temporary bool   // Dir is ours to remove
}

// String names the server in messages.
func (s *RedisServer) String() string { return s.program + " at " + s.Addr }

const redisConf = "redis.conf"

// Redis starts redis-server and waits until it answers.
func Redis(ctx context.Context, o RedisOptions) (*RedisServer, error) {
	return startRedis(ctx, &RedisServer{program: "redis-server", options: o})
}

// startRedis starts what the server is to be, on free addresses where it has none.
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

// taken tries again what fails because somebody else took an address, if only to see whether it is
// free.
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
		s.TLS, err = newTLS(s.Dir)
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
	if s.clustered { // its default is the port plus 10000, where somebody may be
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

// conf is the configuration. Redis takes the last of two lines for the same.
func (s *RedisServer) conf() (string, error) {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return "", err
	}
	lines := []string{"bind " + host, "port " + port, "dir " + strconv.Quote(s.Dir)}
	if s.program == "redis-server" {
		lines = append(lines, `save ""`, "repl-diskless-sync-delay 0") // else a replica waits five seconds for others to come
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

// Start starts a server again after Kill, or after it was asked to end: at the same addresses, with
// the same directory and certificates, and with the configuration as it is in redis.conf now: a
// Sentinel writes there too. Without Persist its data is gone.
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
	cmd.SysProcAttr = attributes(syscall.SIGKILL) // one that is paused would not hear SIGTERM
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

// aLook is how long one look at a server may take that is not ready: whoever accepts there may
// never answer.
const aLook = 2 * time.Second

func (s *RedisServer) answers(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	if _, err := s.Do(ctx, "PING"); err != nil { // as it is while the server loads its data
		return err
	}
	info, err := s.Info(ctx, "server")
	if err == nil && info["process_id"] != strconv.Itoa(pid) {
		err = fmt.Errorf("another process answers at %s: %s", s.Addr, info["process_id"])
	}
	return err
}

// Stop asks the server to end in good order and removes its directory if that is a temporary one.
// It is no error if it was killed by Kill. To end it in good order and Start it again, use
// s.Process.Stop.
func (s *RedisServer) Stop() error {
	return errors.Join(s.Process.Stop(), s.remove())
}

// remove leaves nothing of a server that has ended.
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

// DropData removes what the server has written with Persist, so that the next Start finds nothing.
// Only for one that has ended.
func (s *RedisServer) DropData() error {
	return errors.Join(os.RemoveAll(filepath.Join(s.Dir, "appendonlydir")), os.RemoveAll(filepath.Join(s.Dir, "dump.rdb")))
}

// URL is the server's address with its user and password: redis://...
func (s *RedisServer) URL() string { return s.url("redis", s.Addr) }

// TLSURL is the server's address for TLS: rediss://... Whoever uses it needs TLS.CA too.
func (s *RedisServer) TLSURL() string { return s.url("rediss", s.TLS.Addr) }

func (s *RedisServer) url(scheme, addr string) string {
	u := url.URL{Scheme: scheme, Host: addr}
	if s.options.Password != "" {
		u.User = url.UserPassword(s.options.User, s.options.Password)
	}
	return u.String()
}

// Conn connects to the server, and says who it is if RedisOptions has a password.
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

// Do sends one command on a connection of its own. The reply is as with RedisConn.Do. What looks
// back at the connection needs Conn: WAIT waits for the writes of its own, so here for none.
func (s *RedisServer) Do(ctx context.Context, args ...string) (any, error) {
	c, err := s.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, args...)
}

// Info asks for a section of INFO, like "commandstats", and returns its fields.
func (s *RedisServer) Info(ctx context.Context, section string) (map[string]string, error) {
	return s.fields(ctx, "INFO", section)
}

// fields asks for a text of lines with a name, a colon and a value.
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
