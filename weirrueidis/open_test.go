package weirrueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
)

func option(t *testing.T, url string) rueidis.ClientOption {
	t.Helper()
	a, err := weirredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o, err := clientOption(a)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOptions(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := option(t, "rediss://weir@h/2?server_name=redis.example&password_file="+secret)
	if o.Username != "weir" || o.Password != "pw" || o.SelectDB != 2 || !o.ForceSingleClient || o.ClientName != "weir" || o.Dialer.Timeout != time.Second {
		t.Errorf("%s %s %d %v %s %v", o.Username, o.Password, o.SelectDB, o.ForceSingleClient, o.ClientName, o.Dialer.Timeout)
	}
	if c := o.TLSConfig; c.ServerName != "redis.example" || c.InsecureSkipVerify || c.MinVersion != tls.VersionTLS12 || c.RootCAs != nil {
		t.Errorf("%+v", c)
	}
	if !o.DisableCache || !o.DisableRetry || !o.AlwaysPipelining || o.ConnLifetime != 0 {
		t.Error("what would send twice, keep answers, or close connections that are in use is on")
	}
	address, err := weirredis.ParseURL("rediss+sentinel://u:pw@a,b/primary/1?sentinel_user=s&sentinel_password=q&dial_timeout=3s")
	if err != nil {
		t.Fatal(err)
	}
	o, err = clientOption(address)
	if err != nil || o.Username != "u" || o.Password != "pw" || o.SelectDB != 1 || !o.ForceSingleClient || o.Sentinel.MasterSet != "" {
		t.Errorf("of the master: %s %s %d, %v", o.Username, o.Password, o.SelectDB, err)
	}
	o, err = sentinelOption(address, o)
	if err != nil || o.Username != "s" || o.Password != "q" || o.SelectDB != 0 || o.TLSConfig == nil || o.Dialer.Timeout != 3*time.Second {
		t.Errorf("of a sentinel: %s %s %d, %v", o.Username, o.Password, o.SelectDB, err)
	}
	if o := option(t, "unix:///r.sock"); len(o.InitAddress) != 1 || o.InitAddress[0] != "/r.sock" {
		t.Errorf("%v", o.InitAddress)
	}
}

// TestOpenRefuses: Open returns an error for each invalid URL, without its password.
func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"redis://:secret@h/x":                                                        "not a number",
		"redis://h?password_file=" + file:                                            "is empty",
		"redis://h?password_file=" + file + "-not":                                   "password_file: open",
		"rediss://:secret@h?ca_file=" + file:                                         "holds no certificate",
		"rediss://:secret@h?ca_file=" + file + "-not":                                "ca_file: open",
		"rediss://h?cert_file=" + file + "&key_file=" + file:                         "cert_file and key_file",
		"redis+sentinel://h/m?sentinel_password_file=" + file + "&client_name=noone": "sentinel_password_file",
	} {
		if _, err := Open(url, weirredis.Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if _, err := Open("redis://h", weirredis.Options{Prefix: "{"}); err == nil {
		t.Error("a prefix with a brace")
	}
}

// TestServerIsUnreachable: calls return an error that names the server, without the password. Close
// does not wait for the server.
func TestServerIsUnreachable(t *testing.T) {
	const addr = "127.0.0.1:1"
	s, err := Open("redis://weir:secret@"+addr, weirredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	batch := []weir.Charge{{Name: "l", Key: "k", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, Cost: 1}}
	if err := s.Do(ctx, batch, make([]weir.Decision, 1)); err == nil {
		t.Error("somebody answered")
	}
	err = s.Ready(ctx)
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); err == nil {
		t.Error("it is closed")
	}
}

// conn is a connection that records whether it was closed.
type conn struct {
	net.Conn
	closed chan struct{}
}

func (c *conn) Close() error { close(c.closed); return nil }

// leftover returns the connection that no call took.
func leftover(d *dialer) *conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.left["h:1"][0]
	<-a.done
	return a.conn.(*conn)
}

// TestDialsGoOn: a connection that takes longer than its call has time is used by the next call.
func TestDialsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer("tcp", time.Second)
		made := 0
		d.connect = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			select {
			case <-time.After(50 * time.Millisecond):
				made++
				return &conn{closed: make(chan struct{})}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		dial := func(within time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return d.dial(ctx, "h:1", &net.Dialer{}, nil)
		}
		for i := range 2 { // 20 and 40 ms of 50
			if _, err := dial(20 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("attempt %d: %v", i, err)
			}
		}
		first, err := dial(20 * time.Millisecond)
		if err != nil || made != 1 {
			t.Errorf("%v, %d made", err, made)
		}
		if second, err := dial(time.Second); err != nil || second == first || made != 2 {
			t.Errorf("%v, %d made", err, made)
		}
		// One that no call takes is closed: by the next call if it is too old by then, or at the
		// end.
		dial(20 * time.Millisecond)
		<-time.After(keepFor + time.Second)
		old := leftover(d)
		third, err := dial(time.Second)
		<-old.closed
		if err != nil || third == old {
			t.Errorf("%v: an old one", err)
		}
		dial(20 * time.Millisecond)
		<-time.After(time.Second)
		last := leftover(d)
		d.close()
		<-last.closed
		if _, err := dial(time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestFailedDialsAreForgotten: if an attempt fails after its call has left, later calls do not get
// its error.
func TestFailedDialsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer("tcp", 100*time.Millisecond)
		defer d.close()
		var there atomic.Bool
		d.connect = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if there.Load() {
				return &conn{closed: make(chan struct{})}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := d.dial(ctx, "h:1", nil, nil); err == nil {
			t.Error("nobody is there")
		}
		<-time.After(time.Second)
		there.Store(true)
		if _, err := d.dial(t.Context(), "h:1", nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestPace: however often calls need an address, it is connected to a few times a second, whether
// attempts succeed or fail. After a while without attempts, the next one is made at once.
func TestPace(t *testing.T) {
	for _, failure := range []error{nil, errors.New("nobody there")} {
		synctest.Test(t, func(t *testing.T) {
			d := newDialer("tcp", time.Second)
			defer d.close()
			made := 0
			d.connect = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				made++
				if failure != nil {
					return nil, failure
				}
				return &conn{closed: make(chan struct{})}, nil
			}
			ask := func(span time.Duration) (first error) {
				for end := time.Now().Add(span); time.Now().Before(end); <-time.After(time.Millisecond) {
					if _, err := d.dial(t.Context(), "h:1", nil, nil); err != nil && first == nil {
						first = err
					}
				}
				return first
			}
			if err := ask(time.Millisecond); made != 1 || !errors.Is(err, failure) {
				t.Errorf("%d made, %v", made, err)
			}
			err := ask(30 * time.Second)
			if made < 100 || made > 10+30*8 {
				t.Errorf("%d made in 30 s", made)
			}
			if failure != nil && !errors.Is(err, failure) || failure == nil && !errors.Is(err, errTooSoon) {
				t.Errorf("the error is %v", err)
			}
			<-time.After(calm + time.Second)
			made = 0
			if err := ask(freeAttempts * time.Millisecond); made != freeAttempts || !errors.Is(err, failure) {
				t.Errorf("after a while %d made, %v", made, err)
			}
		})
	}
}

// TestPacesAreBounded: the addresses of removed nodes are dropped.
func TestPacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p paces
		for i := range 20 * maxPaces {
			if err := p.begin(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			<-time.After(calm / 100)
		}
		if len(p.byAddr) > maxPaces {
			t.Errorf("%d addresses are kept", len(p.byAddr))
		}
	})
}
