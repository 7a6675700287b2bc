package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// StartPgbouncer runs a pgbouncer in transaction mode before a PostgreSQL server until the test ends: all
// clients share the given number of connections. It returns its URL.
func StartPgbouncer(t testing.TB, s *PostgresServer, connections int) (url string) {
	t.Helper()
	path, err := Program("pgbouncer", "pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(addr.Release)
	host, port, err := net.SplitHostPort(addr.Host)
	if err != nil {
		t.Fatal(err)
	}
	_, to, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.dir, "pgbouncer.ini")
	config := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%s user=postgres\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %s\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n", to, host, port, connections)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, file)
	cmd.Dir = s.dir
	if err := asServer(cmd); err != nil {
		t.Fatal(err)
	}
	p, err := start(syscall.SIGINT, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err = p.until(ctx, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr.Host)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://postgres@" + addr.Host + "/postgres?sslmode=disable"
}
