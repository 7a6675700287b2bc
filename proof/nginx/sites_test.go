package nginx

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// sitesConf is three addresses: redirects to HTTPS, as certbot writes them; two sites with a certificate each; and one site for another address.
const sitesConf = `
	error_log error.log info;
	limit_req_zone $binary_remote_addr zone=login:1m rate=1r/m;
	limit_req_zone $binary_remote_addr zone=api:1m rate=1r/m;
	client_max_body_size 1k;
	server {
		if ($host = www.shop.example) { return 301 https://$host$request_uri; }
		listen {{.Plain}} default_server;
		server_name shop.example www.shop.example;
		return 301 https://$host$request_uri;
	}
	server {
		listen {{.Secure}} ssl;
		server_name shop.example *.shop.example;
		ssl_certificate shop.crt; ssl_certificate_key shop.key;
		add_header X-Frame-Options DENY;
		location / { proxy_set_header Host $host; proxy_pass http://SHOP; }
		location = /wp-login.php { limit_req zone=login burst=1 nodelay; limit_req_status 429; proxy_set_header Host $host; proxy_pass http://SHOP; }
		location /big { client_max_body_size 10k; proxy_set_header Host $host; proxy_pass http://SHOP; }
	}
	server {
		listen {{.Secure}} ssl;
		server_name api.example;
		ssl_certificate api.crt; ssl_certificate_key api.key;
		limit_req zone=api;
		location /v1/ { proxy_set_header Host $host; proxy_pass http://API/internal/; }
		location = / { return 200 "api"; }
	}
	server {
		listen {{.Other}};
		location / { proxy_set_header Host $host; proxy_pass http://API; }
	}`

// TestSites: nginx and the gateway agree in addresses, names, certificates, redirects, paths, body sizes and
// header fields.
func TestSites(t *testing.T) {
	up := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s %s %s", name, r.Method, r.RequestURI)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	dir := t.TempDir()
	for _, name := range []string{"shop.example", "api.example"} {
		selfSigned(t, dir, name)
	}
	conf := strings.NewReplacer("SHOP", up("shop"), "API", up("api")).Replace(sitesConf)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	nginx, gateway := threeAddresses(t), threeAddresses(t)
	server, err := servers.Nginx(ctx, dir, servers.HTTP(nginx.in(conf)+"\nserver { listen {{.Addr}}; }"))
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, server.Process)
	file := filepath.Join(dir, "gateway.conf")
	if err := os.WriteFile(file, []byte(servers.HTTP(gateway.in(conf))), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, binary, "import", "nginx", "--admin", "127.0.0.1:0", file)
	var notes strings.Builder
	cmd.Stderr = &notes
	policy, err := cmd.Output()
	if err != nil {
		t.Fatalf("weir import nginx: %v\n%s", err, notes.String())
	}
	p := pair{dir: dir}
	p.start(ctx, t, policy, nil)

	for i, c := range []struct {
		method, url string
		body        int
		want        int
	}{
		{"GET", "http://shop.example/a?b=c", 0, 301},
		{"GET", "http://www.shop.example/a", 0, 301},
		{"GET", "http://unknown.example/", 0, 301},
		{"GET", "https://shop.example/", 0, 200},
		{"GET", "https://blog.shop.example/x", 0, 200},
		{"GET", "https://shop.example/wp-login.php", 0, 200},
		{"GET", "https://blog.shop.example/wp-login.php", 0, 200},
		{"GET", "https://shop.example/wp-login.php", 0, 429},
		{"GET", "https://shop.example/wp-login.php5", 0, 200},
		{"POST", "https://shop.example/", 2000, 413},
		{"POST", "https://shop.example/bigger", 2000, 200},
		{"POST", "https://shop.example/bigger", 20000, 413},
		{"GET", "https://api.example/", 0, 200},
		{"GET", "https://api.example/v1", 0, 301},
		{"GET", "https://api.example/v1/users/1?x=y", 0, 200},
		{"GET", "https://api.example/v1/users/1?x=y", 0, 503},
		{"GET", "other://api.example/z", 0, 200},
	} {
		var got [2]string
		for j, at := range []addresses{nginx, gateway} {
			status, text := at.ask(t, c.method, c.url, c.body)
			got[j] = text
			if status != c.want {
				t.Errorf("request %d, %s %s at %s: %d, want %d", i, c.method, c.url, names[j], status, c.want)
			}
		}
		if got[0] != got[1] {
			t.Errorf("request %d, %s %s: nginx %q, weir %q", i, c.method, c.url, got[0], got[1])
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s\n%s", policy, notes.String(), p.weir.Output())
	}
}

// addresses are those of one of both.
type addresses struct{ plain, secure, other string }

// threeAddresses returns three addresses that no other test uses.
func threeAddresses(t *testing.T) addresses {
	t.Helper()
	var all [3]string
	for i := range all {
		a, err := servers.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Release)
		all[i] = a.Host
	}
	return addresses{all[0], all[1], all[2]}
}

// in puts the addresses into a configuration.
func (a addresses) in(conf string) string {
	return strings.NewReplacer("{{.Plain}}", a.plain, "{{.Secure}}", a.secure, "{{.Other}}", a.other).Replace(conf)
}

// ask sends a request to one of the addresses, by the scheme of the URL, and returns the status and all
// that has to be the same.
func (a addresses) ask(t *testing.T, method, url string, body int) (status int, text string) {
	t.Helper()
	scheme, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	addr := map[string]string{"http": a.plain, "https": a.secure, "other": a.other}[scheme]
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
				name := s.PeerCertificates[0].Subject.CommonName
				if !strings.HasSuffix(host, name) {
					t.Errorf("%s at %s: the certificate is for %s", url, addr, name)
				}
				return nil
			}},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       patience,
	}
	if scheme == "other" {
		scheme = "http"
	}
	r, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+rest, strings.NewReader(strings.Repeat("x", body)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Errorf("%s: %v", url, err)
		return 0, ""
	}
	defer resp.Body.Close()
	content, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		content = nil // pages of nginx are not ours
	}
	to := resp.Header.Get("Location")
	if _, port, err := net.SplitHostPort(addr); err == nil { // nginx names its host and port in a redirect to a directory, the gateway the path alone
		to = strings.ReplaceAll(strings.TrimPrefix(to, "https://"+host+":"+port), "https://"+host+"/v1/", "/v1/")
	}
	return resp.StatusCode, fmt.Sprintf("%s; Location: %s; X-Frame-Options: %s", content, to, resp.Header.Get("X-Frame-Options"))
}

// selfSigned writes a certificate for a name and the names below it.
func selfSigned(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "*." + name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(name, ".")
	for file, block := range map[string]*pem.Block{short + ".crt": {Type: "CERTIFICATE", Bytes: der}, short + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
