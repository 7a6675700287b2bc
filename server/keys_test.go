package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestAdminBeyondThisMachine: only with TLS and a token. Certificate and token are those of the
// last reload.
func TestAdminBeyondThisMachine(t *testing.T) {
	path, plain := newPolicy(t)
	dir := filepath.Dir(path)
	open := strings.Replace(plain(2), `admin: "127.0.0.1:0"`, `admin: "0.0.0.0:0"`, 1)
	for _, with := range []string{"", "admin: { token_file: token }", "admin: { tls: { cert: cert.pem, key: key.pem } }"} {
		write(t, path, open+with)
		err := Serve(t.Context(), Options{Path: path, Log: (&running{log: new(logBuffer)}).logger()})
		if err == nil || !strings.Contains(err.Error(), "set admin.token_file and admin.tls") {
			t.Errorf("%q: %v", with, err)
		}
	}
	roots := x509.NewCertPool()
	certificate := func() {
		up := httptest.NewUnstartedServer(nil)
		up.StartTLS()
		defer up.Close()
		pair := up.TLS.Certificates[0]
		roots.AddCert(up.Certificate())
		key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
		write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	}
	certificate()
	const both = "admin: { token_file: token, tls: { cert: cert.pem, key: key.pem } }"
	write(t, path, open+both)
	for bad, want := range map[string]string{"tiny-token": "shorter than 16", "0123456789abcdef x": "no header field", strings.Repeat("x", 5000): "larger than 4096"} {
		write(t, filepath.Join(dir, "token"), bad)
		err := Serve(t.Context(), Options{Path: path, Log: (&running{log: new(logBuffer)}).logger()})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), bad) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	write(t, filepath.Join(dir, "token"), token)
	r := serve(t, Options{Path: path})
	_, port, err := net.SplitHostPort(r.Admin)
	if err != nil {
		t.Fatal(err)
	}
	a := api{t: t, url: "https://127.0.0.1:" + port, token: token, client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	defer a.client.CloseIdleConnections()
	if got := a.ask("GET", "/v1/status", ""); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	if got := a.ask("GET", "/v1/status", "", "Host", "gateway.example"); got.Status != 200 {
		t.Errorf("by a name: %+v", got)
	}
	if got := a.ask("GET", "/v1/status", "", "Authorization", ""); got.Status != 401 {
		t.Errorf("%+v", got)
	}
	if resp, err := http.Get("http://127.0.0.1:" + port + "/v1/status"); err == nil {
		if resp.Body.Close(); resp.StatusCode != 400 {
			t.Errorf("without TLS: %s", resp.Status)
		}
	}
	write(t, filepath.Join(dir, "token"), strings.ToUpper(token))
	if got := a.ask("POST", "/v1/reload", ""); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	if got := a.ask("GET", "/v1/status", ""); got.Status != 401 {
		t.Errorf("the old token: %+v", got)
	}
	a.token = strings.ToUpper(token)
	if got := a.ask("GET", "/v1/status", ""); got.Status != 200 {
		t.Errorf("the new token: %+v", got)
	}
	r.end(t)
}
