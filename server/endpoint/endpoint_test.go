package endpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policyfile"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign makes a certificate for a name, signed by an authority or by itself.
func sign(t *testing.T, by *authority, name string) (made authority, certificate, key []byte) {
	t.Helper()
	made.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, made.key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, made.key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	made.cert, _ = x509.ParseCertificate(der)
	secret, _ := x509.MarshalPKCS8PrivateKey(made.key)
	return made, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func write(t *testing.T, folder, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWhoMayConnect: an address that other machines reach needs TLS with client certificates, or
// secrets over TLS, or the word insecure; the fix can be pasted.
func TestWhoMayConnect(t *testing.T) {
	folder := t.TempDir()
	_, cert, key := sign(t, nil, "localhost")
	write(t, folder, "a.crt", cert)
	write(t, folder, "a.key", key)
	for text, want := range map[string]string{
		`rls: "127.0.0.1:0"`:                     "",
		`rls: "localhost:0"`:                     "",
		`rls: "[::1]:0"`:                         "",
		`rls: "[::ffff:127.0.0.1]:0"`:            "",
		`rls: { address: "127.0.0.1:0" }`:        "",
		`rls: ":0"`:                              `listen.rls: :0 is not a loopback address, and any program on the network could use up limits|write rls: { address: ":0", tls: { cert: FILE, key: FILE, client_ca: FILE } }; or insecure: true`,
		`rls: "0.0.0.0:0"`:                       "any program on the network could use up limits",
		`rls: "service.example:0"`:               "any program on the network could use up limits",
		`rls: { address: ":0", insecure: true }`: "",
		`rls: { address: ":0", tls: { cert: a.crt, key: a.key } }`:                                                        "TLS alone does not say who its clients are|client_ca: FILE",
		`rls: { address: ":0", tls: { cert: a.crt, key: a.key, client_ca: a.crt } }`:                                      "",
		`rls: { address: ":0", tls: { cert: a.crt, key: a.key, client_ca: a.crt, client_auth: optional } }`:               "client_auth: optional accepts clients that nobody knows",
		`rls: { address: ":0", tls: { certificates: [{ cert: a.crt, key: a.key }], client_ca: a.crt } }`:                  "",
		`resp: { address: ":0", users: users.yaml }`:                                                                      `secrets would be sent in plain text|resp: { address: ":0", tls: { cert: FILE, key: FILE }, users: users.yaml }`,
		`resp: { address: ":0", users: users.yaml, tls: { cert: a.crt, key: a.key } }`:                                    "",
		`http: { address: ":0", tokens: tokens.yaml, tls: { cert: a.crt, key: a.key } }`:                                  "",
		`rls: { address: "127.0.0.1:0", tls: { cert: a.crt, key: a.crt } }`:                                               "the certificates of listen.rls: ",
		`rls: { address: "127.0.0.1:0", tls: { cert: none.crt, key: a.key } }`:                                            "none.crt",
		`rls: { address: "127.0.0.1:0", tls: { cert: a.crt } }`:                                                           "cert and key belong together",
		`rls: { address: "127.0.0.1:0", tls: { client_ca: a.crt } }`:                                                      "there is no certificate",
		`rls: { address: "127.0.0.1" }`:                                                                                   "HOST:PORT",
		`rls: { insecure: true }`:                                                                                         "address",
		`rls: { address: "127.0.0.1:0", users: u.yaml }`:                                                                  `there is no key "users"`,
		`rls: { address: "127.0.0.1:0", max_connections: 0 }`:                                                             "0 is not a number",
		`rls: { address: ":0", tls: { cert: a.crt, key: a.key, client_ca: a.crt }, max_connections: 5, insecure: false }`: "",
	} {
		file, err := policyfile.Parse(filepath.Join(folder, "policy.yaml"), []byte("listen: { "+text+" }\n"))
		problems := append([]policyfile.Problem{}, file.Problems...)
		if err == nil {
			for _, name := range []string{"rls", "http", "resp"} {
				problems = append(problems, Check(file, name)...)
			}
		}
		var texts []string
		for _, p := range problems {
			if !p.Warning { // such as: there is nothing to limit
				texts = append(texts, p.Message+" "+p.Fix)
			}
		}
		all := strings.Join(texts, "\n")
		if want == "" && all != "" {
			t.Errorf("%s: %s", text, all)
		}
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(all, part) {
				t.Errorf("%s: %q lacks %q", text, all, part)
			}
		}
	}
}

// opened opens the endpoint of a policy text.
func opened(t *testing.T, folder, text string) (*Endpoint, *active.Policy, *prometheus.Registry) {
	t.Helper()
	file, err := policyfile.Parse(filepath.Join(folder, "policy.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := active.New(t.Context(), file, active.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	registry := prometheus.NewRegistry()
	e, err := Open(t.Context(), face.Host{Policy: p, Log: log, Metrics: registry, Listen: func(a string) (net.Listener, error) { return net.Listen("tcp", a) }}, "rls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Listener().Close() })
	return e, p, registry
}

// TestCertificatesAreReplaced: a handshake uses the newest certificates, those of a reload and those
// of files that changed, and a pair that does not match changes nothing. Clients without a
// certificate of the authority are refused.
func TestCertificatesAreReplaced(t *testing.T) {
	folder := t.TempDir()
	ca, caCert, _ := sign(t, nil, "ca")
	put := func(file, name string) {
		_, cert, key := sign(t, &ca, name)
		write(t, folder, file+".crt", cert)
		write(t, folder, file+".key", key)
	}
	put("a", "one.example")
	put("b", "two.example")
	put("client", "client")
	write(t, folder, "ca.crt", caCert)
	text := `listen: { rls: { address: "127.0.0.1:0", tls: { cert: NAME.crt, key: NAME.key, client_ca: ca.crt } } }`
	e, p, _ := opened(t, folder, strings.ReplaceAll(text, "NAME", "a"))
	go func() {
		for {
			c, err := e.Listener().Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			go func() {
				defer c.Close()
				if s := tls.Server(c, e.TLS("h2")); s.HandshakeContext(t.Context()) == nil {
					io.WriteString(s, "hello")
				}
			}()
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	mine, err := tls.LoadX509KeyPair(filepath.Join(folder, "client.crt"), filepath.Join(folder, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	served := func(with ...tls.Certificate) (string, error) {
		c, err := tls.Dial("tcp", e.Address(), &tls.Config{RootCAs: roots, Certificates: with, NextProtos: []string{"h2"}})
		if err != nil {
			return "", err
		}
		defer c.Close()
		if text, err := io.ReadAll(c); err != nil || string(text) != "hello" {
			return "", errors.New("refused")
		}
		return c.ConnectionState().PeerCertificates[0].DNSNames[0] + " " + c.ConnectionState().NegotiatedProtocol, nil
	}
	expect := func(what, name string) {
		t.Helper()
		if got, err := served(mine); err != nil || got != name+" h2" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	expect("at first", "one.example")
	if got, err := served(); err == nil {
		t.Errorf("without a certificate: %q", got)
	}
	file, err := policyfile.Parse(filepath.Join(folder, "policy.yaml"), []byte(strings.ReplaceAll(text, "NAME", "b")))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Update(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	expect("after an update", "two.example")
	_, cert, key := sign(t, &ca, "three.example")
	write(t, folder, "b.crt", cert)
	e.Tick()
	expect("after half a change", "two.example")
	write(t, folder, "b.key", key)
	e.Tick()
	expect("after a change", "three.example")
}

// TestMaxConnections: a connection beyond the bound is closed at once, and one that is closed makes
// room for another.
func TestMaxConnections(t *testing.T) {
	e, _, registry := opened(t, t.TempDir(), `listen: { rls: { address: "127.0.0.1:0", max_connections: 2 } }`)
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := e.Listener().Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", e.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	first := <-accepted
	<-accepted
	third := dial()
	if _, err := third.Read(make([]byte, 1)); err == nil || e.Open() != 2 {
		t.Errorf("the third connection: %v with %d open", err, e.Open())
	}
	first.Close()
	first.Close() // which counts once
	dial()
	if <-accepted; e.Open() != 2 {
		t.Errorf("%d open", e.Open())
	}
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range all {
		for _, sample := range m.Metric { // the only refusal is for max_connections
			got[m.GetName()] += sample.GetCounter().GetValue() + sample.GetGauge().GetValue()
		}
	}
	if got["weir_face_connections_open"] != 2 || got["weir_face_connections_accepted_total"] != 3 || got["weir_face_connections_refused_total"] != 1 {
		t.Errorf("%v", got)
	}
}
