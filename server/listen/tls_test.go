package listen

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
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T, dir, name string) *authority {
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = issue(t, dir, name, nil)
	a.pool.AddCert(a.cert)
	return a
}

// issue writes NAME.crt and NAME.key, signed by an authority or by themselves.
func issue(t *testing.T, dir, name string, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<60))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: by == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func names(all ...string) (t *policy.TLS) {
	t = &policy.TLS{}
	for _, n := range all {
		t.Certificates = append(t.Certificates, policy.Certificate{Cert: n + ".crt", Key: n + ".key"})
	}
	return t
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	issue(t, dir, "a.test", ca)
	issue(t, dir, "b.test", ca)
	certificates, err := LoadCertificates(names("a.test", "b.test"), in(dir))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, policy.Bounds{}, nil, Options{Certificates: certificates}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS != nil)
	})
	shown := func(name string, c *tls.Config) (serial, protocol string, err error) {
		c.RootCAs, c.ServerName = ca.pool, name
		conn, err := tls.Dial("tcp", s.addr, c)
		if err != nil {
			return "", "", err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		state := conn.ConnectionState()
		if state.NegotiatedProtocol != "h2" {
			if got := ask(conn, get); got != "200 HTTP/1.1 true" {
				return "", "", fmt.Errorf("%q", got)
			}
		}
		return state.PeerCertificates[0].SerialNumber.String(), state.NegotiatedProtocol, nil
	}
	a, protocol, err := shown("a.test", &tls.Config{NextProtos: []string{"h2", "http/1.1"}})
	if err != nil || protocol != "h2" {
		t.Errorf("%v, %q", err, protocol)
	}
	b, protocol, err := shown("b.test", &tls.Config{})
	if err != nil || protocol != "" || a == b {
		t.Errorf("%v, %q, %v", err, protocol, a == b)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool, ServerName: "a.test"}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.addr)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "HTTP/2.0 true" {
		t.Errorf("%s", body)
	}
	resp.Body.Close()
	if _, _, err := shown("a.test", &tls.Config{MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if _, _, err := shown("a.test", &tls.Config{MaxVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}
	if got := ask(s.dial(t), get); !strings.HasPrefix(got, "400 This address speaks HTTPS") {
		t.Errorf("without TLS: %q", got)
	}
	until(t, "failures are counted", func() bool { return s.Counts().Handshake == 2 })

	// Later handshakes get other certificates, and an error changes none.
	before := Version(names("a.test"), in(dir))
	issue(t, dir, "a.test", ca)
	if Version(names("a.test"), in(dir)) == before {
		t.Error("the change is not seen")
	}
	next, err := LoadCertificates(names("a.test"), in(dir))
	if err != nil {
		t.Fatal(err)
	}
	certificates.Replace(next)
	if again, _, err := shown("a.test", &tls.Config{}); err != nil || again == a {
		t.Errorf("%v, %v", err, again == a)
	}
	for name, bad := range map[string]*policy.TLS{
		"there is no file":      names("c.test"),
		"a key of another":      {Certificates: []policy.Certificate{{Cert: "a.test.crt", Key: "b.test.key"}}},
		"no authority in it":    {Certificates: names("a.test").Certificates, ClientCA: "a.test.key"},
		"no file of authorites": {Certificates: names("a.test").Certificates, ClientCA: "x"},
		"nothing":               {},
	} {
		if _, err := LoadCertificates(bad, in(dir)); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, other := newAuthority(t, dir, "ca"), newAuthority(t, dir, "other")
	issue(t, dir, "a.test", ca)
	issue(t, dir, "friend", ca)
	issue(t, dir, "stranger", other)
	for auth, wants := range map[string]string{"": "friend", "required": "friend", "optional": "friend nobody"} {
		n := names("a.test")
		n.ClientCA, n.ClientAuth = "ca.crt", auth
		certificates, err := LoadCertificates(n, in(dir))
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, policy.Bounds{}, nil, Options{Certificates: certificates}, peer)
		var in []string
		for _, who := range []string{"friend", "nobody", "stranger"} {
			c := &tls.Config{RootCAs: ca.pool, ServerName: "a.test"}
			if who != "nobody" {
				pair, err := tls.LoadX509KeyPair(filepath.Join(dir, who+".crt"), filepath.Join(dir, who+".key"))
				if err != nil {
					t.Fatal(err)
				}
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // also if it is not asked for
			}
			conn, err := tls.Dial("tcp", s.addr, c)
			if err != nil {
				continue
			}
			conn.SetDeadline(time.Now().Add(patience))
			if ask(conn, get) == "200 127.0.0.1" {
				in = append(in, who)
			}
			conn.Close()
		}
		if got := strings.Join(in, " "); got != wants {
			t.Errorf("%q lets in %s", auth, got)
		}
	}
}

// TestStopLetsHandshakesEnd: an accepted connection is served after Stop; others are not.
func TestStopLetsHandshakesEnd(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	issue(t, dir, "a.test", ca)
	certificates, err := LoadCertificates(names("a.test"), in(dir))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, policy.Bounds{}, nil, Options{Certificates: certificates}, peer)
	c := s.dial(t)
	until(t, "it is accepted", func() bool { return s.Counts().Open == 1 })
	s.l.Stop()
	until(t, "nobody else is", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	conn := tls.Client(c, &tls.Config{RootCAs: ca.pool, ServerName: "a.test"})
	if got := ask(conn, get); got != "200 127.0.0.1" {
		t.Errorf("%q", got)
	}
}

// in returns the path function of a directory.
func in(dir string) func(string) string {
	return func(name string) string { return filepath.Join(dir, name) }
}
