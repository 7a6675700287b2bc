package gateway_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

// TestTLS: which upstreams the gateway trusts, which certificate it shows, and which version of
// HTTP it uses.
func TestTLS(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %d %s", r.Proto, len(r.TLS.PeerCertificates), r.TLS.ServerName)
	}))
	up.EnableHTTP2 = true
	up.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	up.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // errors of handshakes that should fail
	up.StartTLS()
	defer up.Close()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.pem", "CERTIFICATE", up.Certificate().Raw) // it is self-signed
	key, err := x509.MarshalPKCS8PrivateKey(up.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write("key.pem", "PRIVATE KEY", key)
	load := func(settings string) (*policyfile.File, error) {
		path := filepath.Join(dir, "policy.yaml")
		if err := os.WriteFile(path, []byte("upstreams: { up: { url: \""+up.URL+"\""+settings+" } }\nroutes: [{ match: /, upstream: up }]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return policyfile.Load(path)
	}
	var g served
	var front *httptest.Server
	for _, c := range []struct {
		settings, body string
		status         int
	}{
		{"", "the upstream cannot be reached\n", 502},
		{", tls: { ca: ca.pem }", "HTTP/2.0 0 ", 200},
		{", tls: { ca: ca.pem, server_name: example.com }", "HTTP/2.0 0 example.com", 200},
		{", tls: { ca: ca.pem, server_name: shop.example }", "the upstream cannot be reached\n", 502},
		{", tls: { insecure: true }", "HTTP/2.0 0 ", 200},
		{", protocol: http1, tls: { ca: ca.pem }", "HTTP/1.1 0 ", 200},
		{", protocol: h2, tls: { ca: ca.pem, certificate: ca.pem, key: key.pem }", "HTTP/2.0 1 ", 200},
	} {
		file, err := load(c.settings)
		if err != nil {
			t.Fatal(err)
		}
		if g.Gateway == nil {
			g = openGateway(t, file, slog.New(slog.DiscardHandler))
			front = httptest.NewServer(g)
			defer func() { front.Close(); g.Close() }()
		} else if err := g.Update(file); err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get(front.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s: %d %q", c.settings, resp.StatusCode, body)
		}
	}
	if _, err := load(", tls: { ca: key.pem }"); err == nil || !strings.Contains(err.Error(), "key.pem has no certificate") {
		t.Error(err)
	}
	if _, err := load(", tls: { certificate: key.pem, key: ca.pem }"); err == nil || strings.Contains(err.Error(), "BEGIN") || !strings.Contains(err.Error(), "cannot be used") {
		t.Error(err)
	}
}
