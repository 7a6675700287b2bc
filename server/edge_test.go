package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a new certificate and its key for a name, and returns its serial number.
func certificate(t *testing.T, dir, name string, good time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<60))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(good),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	// Written one after the other, as an administrator copies them.
	write(t, filepath.Join(dir, name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, filepath.Join(dir, name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return serial.String()
}

// shown returns the serial number of the certificate that a server shows for the name "a".
func shown(t *testing.T, addr string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "a", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

const secured = `
listen:
  gateway:
    - { address: "127.0.0.1:0", redirect_https: true }
    - { address: "127.0.0.1:0", tls: { certificates: [{ cert: a.crt, key: a.key }] } }
  admin: 127.0.0.1:0
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up }]
`

func TestCertificatesAreReloaded(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-Proto")) }))
	defer up.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	first := certificate(t, dir, "a", time.Hour)
	b := certificate(t, dir, "b", 365*24*time.Hour)
	write(t, path, strings.ReplaceAll(secured, "URL", up.URL))
	r := serve(t, Options{Path: path, Watch: time.Millisecond})
	plain, secure := r.Gateways[0], r.Gateways[1]
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Get("http://" + plain + "/x") // and on to the other address
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "https" || resp.Request.URL.Host != secure {
		t.Errorf("%s from %s", body, resp.Request.URL)
	}
	resp.Body.Close()
	client.CloseIdleConnections()
	if got := shown(t, secure); got != first {
		t.Errorf("%s is shown, not %s", got, first)
	}
	if log := r.log.String(); strings.Count(log, "a certificate expires soon") != 1 {
		t.Errorf("%s", log)
	}
	if _, metrics := fetch(t, "http://"+r.Admin+"/metrics"); !strings.Contains(metrics, `weir_certificate_not_after_seconds{file="a.crt"} 1.`) {
		t.Errorf("%s", metrics)
	}
	// A broken file changes nothing, and is logged once.
	write(t, filepath.Join(dir, "a.crt"), "broken")
	until(t, "noticing a broken certificate", func() bool { return strings.Contains(r.log.String(), "certificates not reloaded") })
	if got := shown(t, secure); got != first {
		t.Errorf("%s is shown, not %s", got, first)
	}
	second := certificate(t, dir, "a", 365*24*time.Hour)
	until(t, "a new certificate", func() bool { return shown(t, secure) == second })
	// A policy that names other files works as a changed file does. One with missing files is
	// refused as a whole.
	write(t, path, strings.ReplaceAll(strings.ReplaceAll(secured, "URL", up.URL), "cert: a.crt", "cert: no.crt"))
	until(t, "noticing that there is no file", func() bool { return strings.Contains(r.log.String(), "no.crt: no such file") })
	write(t, path, strings.ReplaceAll(strings.ReplaceAll(secured, "URL", up.URL), "a.crt, key: a.key", "b.crt, key: b.key"))
	until(t, "another certificate", func() bool { return shown(t, secure) == b })
	// The rest of listen does not change, and the log says what to do.
	for what, text := range map[string]string{
		"listen.gateway changes only with a restart: SIGUSR2": strings.ReplaceAll(secured, "redirect_https: true", "h2c: true"),
		"listen.bounds changes only with a restart: SIGUSR2":  strings.ReplaceAll(secured, "  admin:", "  bounds: { max_fields: 7 }\n  admin:"),
		"listen.admin changes only with a restart: SIGUSR2":   strings.ReplaceAll(secured, "  admin: 127.0.0.1:0\n", ""),
	} {
		write(t, path, strings.ReplaceAll(text, "URL", up.URL))
		until(t, what, func() bool { return strings.Contains(r.log.String(), what) })
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestMissingCertificatesAndLogs: a missing certificate, or a log that cannot be written, is an error
// before anything is served.
func TestMissingCertificatesAndLogs(t *testing.T) {
	for text, want := range map[string]string{
		strings.ReplaceAll(secured, "URL", "http://127.0.0.1:1"): "the certificates of 127.0.0.1:0",
		`
listen: { gateway: "127.0.0.1:0" }
access_log: no/such/directory/access.log
upstreams: { up: { url: "http://127.0.0.1:1" } }
routes: [{ match: /, upstream: up }]
`: "access_log: open",
	} {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		write(t, path, text)
		if err := Serve(t.Context(), Options{Path: path, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}

func TestAccessLogInAPolicy(t *testing.T) {
	path, with := newPolicy(t)
	log := filepath.Join(filepath.Dir(path), "access.log")
	write(t, path, with(100)+"access_log: access.log\n")
	reopen := make(chan struct{})
	r := serve(t, Options{Path: path, Watch: time.Millisecond, Reopen: reopen})
	lines := func(file string) int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "\n")
	}
	fetch(t, "http://"+r.Gateway+"/a")
	until(t, "a line", func() bool { return lines(log) == 1 })
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	reopen <- struct{}{}
	until(t, "reopening", func() bool { return strings.Contains(r.log.String(), "access log opened again") })
	fetch(t, "http://"+r.Gateway+"/b")
	until(t, "a line in the new file", func() bool { return lines(log) == 1 && lines(log+".1") == 1 })
	// The policy changes the format, the file, and then removes the log.
	write(t, path, with(100)+"access_log: { file: other.log, format: json }\n")
	until(t, "the new policy", func() bool { return strings.Contains(r.log.String(), "policy reloaded") })
	fetch(t, "http://"+r.Gateway+"/c")
	other := filepath.Join(filepath.Dir(path), "other.log")
	until(t, "a line in the other file", func() bool { return lines(other) == 1 })
	if text, _ := os.ReadFile(other); !strings.HasPrefix(string(text), `{"time":"`) {
		t.Errorf("%s", text)
	}
	write(t, path, with(100)+"access_log: no/such/directory/x.log\n")
	until(t, "noticing that it cannot be written", func() bool { return strings.Contains(r.log.String(), "no such file or directory") })
	fetch(t, "http://"+r.Gateway+"/d")
	write(t, path, with(100))
	until(t, "no log", func() bool { return strings.Count(r.log.String(), "policy reloaded") == 2 })
	fetch(t, "http://"+r.Gateway+"/e")
	if n := lines(other); n != 2 {
		t.Errorf("%d lines", n)
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestShutdownWritesTheLog: when Serve has returned, the last lines are in the log.
func TestShutdownWritesTheLog(t *testing.T) {
	path, with := newPolicy(t)
	write(t, path, with(100)+"access_log: access.log\n")
	r := serve(t, Options{Path: path})
	for i := range 10 {
		fetch(t, fmt.Sprintf("http://%s/%d", r.Gateway, i))
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "access.log"))
	if err != nil || strings.Count(string(text), "\n") != 10 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestRefusedBeforeTheGateway: a request that is refused before any limit is in the access log,
// too.
func TestRefusedBeforeTheGateway(t *testing.T) {
	path, with := newPolicy(t)
	write(t, path, strings.Replace(with(100), "listen: {", "listen: { bounds: { max_fields: 5 },", 1)+"access_log: { file: access.log, format: json }\n")
	r := serve(t, Options{Path: path})
	for _, method := range []string{"GET", "HEAD", "POST"} {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Gateway+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			req.Header.Set(fmt.Sprintf("X-%d", i), "y")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "access.log"))
	if err != nil || strings.Count(string(text), `"uri":"/x","protocol":"HTTP/1.1","status":431`) != 3 {
		t.Errorf("%s, %v", text, err)
	}
}
