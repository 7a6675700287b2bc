package resp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirflow/weir/proof/servers"
)

const withTLS = `listen:
  admin: "127.0.0.1:0"
  resp: { address: "127.0.0.1:0", tls: { cert: %q, key: %q, client_ca: %q }, users: users.acl }
limits: { api: { key: header.user, token_bucket: { rate: 1/h, burst: 10 } } }
`

// TestTLSClients: redis-cli, go-redis, rueidis, ioredis and node-redis over TLS with client certificates,
// users and passwords. Without a certificate, or with a wrong password, nothing is carried out.
func TestTLSClients(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certs, err := servers.NewTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "policy.yaml")
	for name, text := range map[string]string{
		file:                            fmt.Sprintf(withTLS, certs.ServerCert, certs.ServerKey, certs.CAFile),
		filepath.Join(dir, "users.acl"): fmt.Sprintf("user app on #%x\n", sha256.Sum256([]byte("secret"))),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := servers.StartWeir(t.Context(), path, file)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	address := w.ByFace["resp"][0]
	_, port, _ := net.SplitHostPort(address)

	t.Run("redis-cli", func(t *testing.T) {
		words := []string{"redis-cli", "-p", port, "--tls", "--cacert", certs.CAFile, "--user", "app", "--pass", "secret", "--no-auth-warning"}
		certificate := []string{"--cert", certs.CertFile, "--key", certs.KeyFile}
		for _, version := range []string{"-2", "-3"} {
			if got := run(t, "", append(append(words, certificate...), version, "CL.THROTTLE", "cli"+version, "15", "30", "60")...); got != "0\n16\n15\n-1\n2\n" {
				t.Errorf("redis-cli %s: %q", version, got)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, words[0], append(words[1:], "CL.THROTTLE", "cli", "15", "30", "60")...).CombinedOutput()
		if strings.HasPrefix(string(out), "0\n16") {
			t.Errorf("redis-cli without a certificate: %q %v", out, err)
		}
	})
	t.Run("go-redis", func(t *testing.T) {
		for _, protocol := range []int{2, 3} {
			c := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, TLSConfig: certs.Config(), Username: "app", Password: "secret"})
			defer c.Close()
			if got, err := c.Do(t.Context(), "CL.THROTTLE", fmt.Sprint("go", protocol), 4, 1, 100).Int64Slice(); err != nil || fmt.Sprint(got) != "[0 5 4 -1 100]" {
				t.Errorf("RESP%d: %v %v", protocol, got, err)
			}
		}
		c := redis.NewClient(&redis.Options{Addr: address, TLSConfig: certs.Config(), Username: "app", Password: "wrong", MaxRetries: -1})
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("a wrong password: %v", err)
		}
	})
	t.Run("rueidis", func(t *testing.T) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true, TLSConfig: certs.Config(), Username: "app", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := c.Do(t.Context(), c.B().Arbitrary("CL.THROTTLE").Keys("rueidis").Args("4", "1", "100").Build()).AsIntSlice(); err != nil || fmt.Sprint(got) != "[0 5 4 -1 100]" {
			t.Errorf("%v %v", got, err)
		}
	})
	t.Run("node", func(t *testing.T) {
		t.Setenv("CA", certs.CAFile)
		t.Setenv("CERT", certs.CertFile)
		t.Setenv("KEY", certs.KeyFile)
		t.Setenv("CLIENT_USER", "app")
		t.Setenv("CLIENT_PASSWORD", "secret")
		var got map[string]any
		if err := json.Unmarshal([]byte(run(t, "ADDRESS="+address, "node", "clients.mjs")), &got); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"ioredis": "[[0 5 4 -1 100] PONG]", "redis2": "[[0 5 4 -1 100] PONG]", "redis3": "[[0 5 4 -1 100] PONG]", "take3": "1"} {
			if fmt.Sprint(got[name]) != want {
				t.Errorf("%s: %v, want %s", name, got[name], want)
			}
		}
	})
}
