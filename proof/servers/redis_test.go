package servers_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// stops registers a Stop for the end of the test.
func stops(t *testing.T, s interface{ Stop() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func redis(t *testing.T, o servers.RedisOptions) *servers.RedisServer {
	t.Helper()
	s, err := servers.Redis(within(t, 30*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	stops(t, s)
	return s
}

type asker interface {
	Do(context.Context, ...string) (any, error)
}

// says sends a command, and compares the reply.
func says(t *testing.T, s asker, want any, args ...string) {
	t.Helper()
	if v, err := s.Do(within(t, 30*time.Second), args...); err != nil || v != want {
		t.Errorf("%v: %v, %v, not %v", args, v, err, want)
	}
}

// refuses sends a command, and compares the first word of the error.
func refuses(t *testing.T, s asker, code string, args ...string) {
	t.Helper()
	v, err := s.Do(within(t, 30*time.Second), args...)
	if e, ok := errors.AsType[servers.RedisError](err); !ok || e.Code() != code {
		t.Errorf("%v: %v, %v, not %s", args, v, err, code)
	}
}

// replicate sets a key and waits until so many replicas have it.
func replicate(t *testing.T, s *servers.RedisServer, replicas int64, key, value string) {
	t.Helper()
	c, err := s.Conn(within(t, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	says(t, c, "OK", "SET", key, value)
	says(t, c, replicas, "WAIT", fmt.Sprint(replicas), "0")
}

func TestRedis(t *testing.T) {
	s := redis(t, servers.RedisOptions{})
	if url := s.URL(); url != "redis://"+s.Addr {
		t.Error(url)
	}
	says(t, s, "OK", "SET", "a\x00b", "1")
	says(t, s, "1", "GET", "a\x00b")
	says(t, s, int64(1), "DBSIZE")
	if stats, err := s.Info(within(t, 30*time.Second), "commandstats"); err != nil || !strings.HasPrefix(stats["cmdstat_get"], "calls=1,") {
		t.Error(stats, err)
	}
	if err := s.Start(within(t, 30*time.Second)); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Error(err)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", s.Dir, err)
	}
	if conn, err := net.Dial("tcp", s.Addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

func TestARedisThatCannotStartSaysWhy(t *testing.T) {
	_, err := servers.Redis(within(t, 30*time.Second), servers.RedisOptions{Config: []string{"lissen yes"}})
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready") || !strings.Contains(err.Error(), "lissen") {
		t.Error(err)
	}
	s := redis(t, servers.RedisOptions{})
	_, err = servers.Redis(within(t, 30*time.Second), servers.RedisOptions{Addr: s.Addr})
	if err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Error(err)
	}
}

func TestALackingRedisIsNamedWithItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := servers.Redis(t.Context(), servers.RedisOptions{}); err == nil || !strings.Contains(err.Error(), "apt install redis-server") {
		t.Error(err)
	}
}

func TestRedisIsKilledAndStartedAgain(t *testing.T) {
	for _, persist := range []bool{false, true} {
		t.Run(fmt.Sprintf("persist=%v", persist), func(t *testing.T) {
			s := redis(t, servers.RedisOptions{Persist: persist})
			addr := s.Addr
			again := func() {
				t.Helper()
				if err := s.Start(within(t, 30*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			size := int64(0)
			if persist {
				size = 1
			}
			says(t, s, "OK", "SET", "a", "1")
			s.Kill()
			if _, err := s.Do(within(t, 30*time.Second), "PING"); err == nil {
				t.Error("it answers")
			}
			if err := s.Process.Stop(); err != nil {
				t.Error("it was killed on purpose:", err)
			}
			again()
			says(t, s, size, "DBSIZE")
			if err := s.Process.Stop(); err != nil { // gracefully
				t.Error(err)
			}
			again()
			says(t, s, size, "DBSIZE")
			s.Kill()
			if err := s.DropData(); err != nil {
				t.Error(err)
			}
			again()
			says(t, s, int64(0), "DBSIZE")
			if s.Addr != addr {
				t.Errorf("it moved from %s to %s", addr, s.Addr)
			}
		})
	}
}

func TestAnotherRedisTakesOverAddressAndDirectory(t *testing.T) {
	o := servers.RedisOptions{Dir: t.TempDir(), Persist: true}
	s := redis(t, o)
	says(t, s, "OK", "SET", "a", "1")
	s.Kill()
	o.Addr = s.Addr
	says(t, redis(t, o), "1", "GET", "a")
}

func TestAServerThatWasKilledByOthersDidNotEndWell(t *testing.T) {
	s, err := servers.Redis(within(t, 30*time.Second), servers.RedisOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(os.Kill); err != nil {
		t.Error(err)
	}
	<-s.Ended()
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "did not end well") {
		t.Error(err)
	}
	if err := s.Pause(); err == nil {
		t.Error("what has ended was paused")
	}
}

func TestRedisIsPaused(t *testing.T) {
	s := redis(t, servers.RedisOptions{})
	c, err := s.Conn(within(t, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Do(within(t, 50*time.Millisecond), "PING"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", v, err)
	}
	s.Resume()
	says(t, c, "PONG", "PING")
	if err := s.Pause(); err != nil { // a paused server is stopped, too
		t.Error(err)
	}
}

func TestRedisSpeaksTLS(t *testing.T) {
	s := redis(t, servers.RedisOptions{TLS: true, Password: "p w"})
	if url := s.TLSURL(); url != "rediss://:p%20w@"+s.TLS.Addr {
		t.Error(url)
	}
	shake := func(config *tls.Config) (*servers.RedisConn, error) {
		return servers.DialRedis(within(t, 30*time.Second), s.TLS.Addr, config)
	}
	for name, config := range map[string]*tls.Config{
		"without a certificate": {RootCAs: s.TLS.CA},
		"with one":              s.TLS.Config(),
		"by name":               {RootCAs: s.TLS.CA, ServerName: "localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := shake(config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			refuses(t, c, "NOAUTH", "PING")
			says(t, c, "OK", "AUTH", "p w")
			says(t, c, "PONG", "PING")
		})
	}
	unknown := new(tls.CertificateVerificationError)
	if _, err := shake(nil); err != nil {
		t.Error(err) // only this connection
	}
	if _, err := shake(&tls.Config{}); !errors.As(err, &unknown) {
		t.Errorf("an authority that nobody trusts: %v", err)
	}
	if _, err := shake(&tls.Config{RootCAs: s.TLS.CA, ServerName: "elsewhere"}); !errors.As(err, &unknown) {
		t.Errorf("another name: %v", err)
	}
	s.Kill()
	if err := s.Start(within(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	c, err := shake(s.TLS.Config())
	if err != nil {
		t.Fatal("after a restart:", err)
	}
	c.Close()
}

func TestRedisWantsAClientsCertificate(t *testing.T) {
	s := redis(t, servers.RedisOptions{TLS: true, Config: []string{"tls-auth-clients yes"}})
	for shown, config := range map[bool]*tls.Config{false: {RootCAs: s.TLS.CA}, true: s.TLS.Config()} {
		c, err := servers.DialRedis(within(t, 30*time.Second), s.TLS.Addr, config)
		if err == nil { // with TLS 1.3 a client learns of it when it reads
			_, err = c.Do(within(t, 30*time.Second), "PING")
			c.Close()
		}
		if (err == nil) != shown {
			t.Errorf("shown: %v: %v", shown, err)
		}
	}
}

func TestRedisHasUsers(t *testing.T) {
	s := redis(t, servers.RedisOptions{User: "root", Password: "all", Config: []string{
		"user default off", "user root on >all ~* &* +@all", "user app on >some ~app:* +get +set +auth",
	}})
	if url := s.URL(); url != "redis://root:all@"+s.Addr {
		t.Error(url)
	}
	says(t, s, "root", "ACL", "WHOAMI")
	c, err := servers.DialRedis(within(t, 30*time.Second), s.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refuses(t, c, "NOAUTH", "GET", "app:1")
	refuses(t, c, "WRONGPASS", "AUTH", "app", "all")
	says(t, c, "OK", "AUTH", "app", "some")
	says(t, c, "OK", "SET", "app:1", "x")
	refuses(t, c, "NOPERM", "SET", "other", "x")
	refuses(t, c, "NOPERM", "FLUSHALL")
}
