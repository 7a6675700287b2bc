package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// MariaDBOptions say how to start a MariaDB server. The zero value is a server on a free port in which
// everyone may do anything, and which does not wait for its disk.
type MariaDBOptions struct {
	Persist bool     // wait for the disk at each commit
	Users   bool     // have users and rights; root has no password
	Config  []string // further settings, like "--max-connections=300"
}

// A MariaDBServer is a MariaDB server on a loopback address, with a database "weir". Start replaces its
// Process: while Start runs, no other goroutine may use the Process. All else is safe for concurrent use.
type MariaDBServer struct {
	*Process
	Addr string // HOST:PORT

	dir     string
	claim   *Address
	options MariaDBOptions
}

// String names the server in messages.
func (s *MariaDBServer) String() string { return "mariadb at " + s.Addr }

// URL returns the URL of its database.
func (s *MariaDBServer) URL() string { return "mysql://root@" + s.Addr + "/weir" }

// StartMariaDB runs a MariaDB server until the test ends.
func StartMariaDB(t testing.TB, o MariaDBOptions) *MariaDBServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := MariaDB(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// MariaDB starts a server with data of its own, and waits until it responds.
func MariaDB(ctx context.Context, o MariaDBOptions) (*MariaDBServer, error) {
	s := &MariaDBServer{options: o}
	var err error
	if s.claim, err = FreeAddress(); err != nil {
		return nil, err
	}
	s.Addr = s.claim.Host
	// not in TMPDIR, which may be too long for the path of a socket
	if s.dir, err = os.MkdirTemp("/tmp", "weir-mariadb-"); err != nil {
		s.claim.Release()
		return nil, err
	}
	if err = s.initialise(ctx); err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// initialise makes the files of a server, and a folder, which is a database.
func (s *MariaDBServer) initialise(ctx context.Context) error {
	data := filepath.Join(s.dir, "data")
	path, err := Program("mariadb-install-db", "mariadb-server")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append(s.user(), "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return os.MkdirAll(filepath.Join(data, "weir"), 0o700)
}

// user has a program run as root where the tests do: the server otherwise refuses to.
func (s *MariaDBServer) user() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// Start restarts a server after Kill, or after it was shut down, at the same address and with the same data.
func (s *MariaDBServer) Start(ctx context.Context) error {
	path, err := exec.LookPath("mariadbd")
	if err != nil { // Debian keeps it out of the PATH of most users
		if path, err = Program("/usr/sbin/mariadbd", "mariadb-server"); err != nil {
			return err
		}
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := append([]string{"--no-defaults"}, s.user()...)
	args = append(args, "--datadir="+filepath.Join(s.dir, "data"), "--bind-address="+host, "--port="+port, "--socket="+filepath.Join(s.dir, "socket"),
		"--pid-file="+filepath.Join(s.dir, "pid"), "--tmpdir="+s.dir, "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M")
	if !s.options.Users {
		args = append(args, "--skip-grant-tables")
	}
	if !s.options.Persist {
		args = append(args, "--innodb-flush-log-at-trx-commit=2")
	}
	p, err := start(syscall.SIGTERM, exec.Command(path, append(args, s.options.Config...)...))
	if err != nil {
		return err
	}
	p.Name = s.String()
	if err := p.until(ctx, s.greets); err != nil {
		return err
	}
	s.Process = p
	return nil
}

// greets returns why the server does not greet a client. It listens earlier, and is deaf to SIGTERM until then.
func (s *MariaDBServer) greets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetReadDeadline(end); err != nil {
			return err
		}
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// Stop shuts the server down and removes its data. It is no error if Kill ended the server.
func (s *MariaDBServer) Stop() error {
	var err error
	if s.Process != nil {
		err = s.Process.Stop()
	}
	return errors.Join(err, s.remove())
}

// remove removes the files of a server that has ended.
func (s *MariaDBServer) remove() error {
	s.claim.Release()
	return os.RemoveAll(s.dir)
}
