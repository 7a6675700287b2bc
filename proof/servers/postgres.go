package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PostgresOptions say how to start a PostgreSQL server. The zero value is a server on a free port that
// does not wait for its disk.
type PostgresOptions struct {
	Persist bool     // wait for the disk, so that Start after Kill has all that was committed
	Config  []string // further settings, like "max_connections=300"
}

// A PostgresServer is a PostgreSQL server on a loopback address. Start replaces its Process: while Start
// runs, no other goroutine may use the Process. All else is safe for concurrent use.
type PostgresServer struct {
	*Process
	Addr string // HOST:PORT

	dir     string
	claim   *Address
	options PostgresOptions
}

// String names the server in messages.
func (s *PostgresServer) String() string { return "postgres at " + s.Addr }

// URL returns the server's URL. Every connection may do anything.
func (s *PostgresServer) URL() string {
	return "postgres://postgres@" + s.Addr + "/postgres?sslmode=disable"
}

// StartPostgres runs a PostgreSQL server until the test ends.
func StartPostgres(t testing.TB, o PostgresOptions) *PostgresServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := Postgres(ctx, o)
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

// Postgres starts a server with a database of its own, and waits until it responds.
func Postgres(ctx context.Context, o PostgresOptions) (*PostgresServer, error) {
	return startPostgres(ctx, &PostgresServer{options: o}, "initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// Standby starts a server with the data of this one, which it follows by streaming replication.
func (s *PostgresServer) Standby(ctx context.Context) (*PostgresServer, error) {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return nil, err
	}
	return startPostgres(ctx, &PostgresServer{options: s.options}, "pg_basebackup", "-h", host, "-p", port, "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync")
}

// Promote makes a standby a server that can be written.
func (s *PostgresServer) Promote(ctx context.Context) error {
	return s.runProgram(ctx, "pg_ctl", "promote", "-w")
}

// startPostgres starts a server whose data one of PostgreSQL's programs makes.
func startPostgres(ctx context.Context, s *PostgresServer, program string, args ...string) (_ *PostgresServer, err error) {
	if s.claim, err = FreeAddress(); err != nil {
		return nil, err
	}
	s.Addr = s.claim.Host
	// not in TMPDIR, which the server's user may not be allowed to enter
	if s.dir, err = os.MkdirTemp("/tmp", "weir-postgres-"); err != nil {
		s.claim.Release()
		return nil, err
	}
	if err = s.own(); err == nil {
		err = s.runProgram(ctx, program, args...)
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// postgresProgram returns the path of one of the server's programs. Debian keeps them out of PATH.
func postgresProgram(name string) (string, error) {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is valid
	if len(all) > 0 {
		return all[len(all)-1], nil
	}
	return Program(name, "postgresql")
}

// asServer has a command run as a user who is not root, as PostgreSQL demands.
func asServer(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes(syscall.SIGQUIT)
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := serverUser()
	if err != nil {
		return err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	return nil
}

// serverUser returns the user whom Debian's package makes for the server.
func serverUser() (uid, gid uint32, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, fmt.Errorf("PostgreSQL does not run as root: apt install postgresql (%w)", err)
	}
	both := [2]uint64{}
	for i, text := range []string{u.Uid, u.Gid} {
		if both[i], err = strconv.ParseUint(text, 10, 32); err != nil {
			return 0, 0, err
		}
	}
	return uint32(both[0]), uint32(both[1]), nil
}

// own makes the folder of the server that of its user.
func (s *PostgresServer) own() error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := serverUser()
	if err != nil {
		return err
	}
	return os.Chown(s.dir, int(uid), int(gid))
}

// runProgram runs one of PostgreSQL's programs on the data of the server, to its end.
func (s *PostgresServer) runProgram(ctx context.Context, name string, args ...string) error {
	path, err := postgresProgram(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append(args, "-D", filepath.Join(s.dir, "data"))...)
	cmd.Dir = s.dir
	if err := asServer(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// Start restarts a server after Kill, or after it was shut down, at the same address and with the same
// data.
func (s *PostgresServer) Start(ctx context.Context) error {
	path, err := postgresProgram("postgres")
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := []string{"-D", filepath.Join(s.dir, "data"), "-c", "listen_addresses=" + host, "-c", "port=" + port, "-c", "unix_socket_directories=", "-c", "autovacuum_naptime=1s"}
	if !s.options.Persist {
		args = append(args, "-c", "fsync=off")
	}
	for _, setting := range s.options.Config {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	if err := asServer(cmd); err != nil {
		return err
	}
	p, err := start(syscall.SIGINT, cmd)
	if err != nil {
		return err
	}
	p.Name = s.String()
	if err := p.until(ctx, func(context.Context) error { return s.ready(p.Pid()) }); err != nil {
		return err
	}
	s.Process = p
	return nil
}

// ready reads from the server's own file whether it accepts connections.
func (s *PostgresServer) ready(pid int) error {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(pid) || strings.TrimSpace(lines[7]) != "ready" { // also of a standby that can be read
		return errors.New("it is starting")
	}
	return nil
}

// Stop shuts the server down and removes its data. It is no error if Kill ended the server.
func (s *PostgresServer) Stop() error { return errors.Join(s.Process.Stop(), s.remove()) }

// remove removes the files of a server that has ended.
func (s *PostgresServer) remove() error {
	s.claim.Release()
	return os.RemoveAll(s.dir)
}
