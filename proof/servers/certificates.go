package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A TLS is what a client needs to connect to a server over TLS: the authority of the server's
// certificate, which is for 127.0.0.1 and localhost, and a client certificate. The files, in PEM,
// are in the server's directory.
type TLS struct {
	Addr        string // HOST:PORT
	CA          *x509.CertPool
	Certificate tls.Certificate // of the client
	CAFile      string
	CertFile    string // of the client
	KeyFile     string // of the client

	ExpiredCert string // an expired certificate for the server, of the same authority
	ExpiredKey  string
	ServerCert  string // the server's first certificate
	ServerKey   string
}

// Config returns the configuration of a client with its certificate.
func (t *TLS) Config() *tls.Config {
	return &tls.Config{RootCAs: t.CA, Certificates: []tls.Certificate{t.Certificate}, MinVersion: tls.VersionTLS12}
}

// NewTLS makes an authority and its certificates, and writes the files. The authority's key is not
// kept.
func NewTLS(dir string) (*TLS, error) {
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		}
	}
	authority := template(1, "authority of a test")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	server := template(2, "localhost")
	server.DNSNames, server.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := template(3, "client of a test")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	t := &TLS{CA: x509.NewCertPool()}
	for _, f := range []struct {
		path *string
		name string
	}{
		{&t.CAFile, "ca.crt"}, {&t.CertFile, "client.crt"}, {&t.KeyFile, "client.key"}, {&t.ServerCert, "server.crt"}, {&t.ServerKey, "server.key"},
		{&t.ExpiredCert, "expired.crt"}, {&t.ExpiredKey, "expired.key"},
	} {
		*f.path = filepath.Join(dir, f.name)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if authority, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	t.CA.AddCert(authority)
	if err := writePEM(t.CAFile, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	if err := issue(server, authority, key, t.ServerCert, t.ServerKey); err != nil {
		return nil, err
	}
	expired := *server
	expired.SerialNumber, expired.NotAfter = big.NewInt(4), now.Add(-time.Minute)
	if err := issue(&expired, authority, key, t.ExpiredCert, t.ExpiredKey); err != nil {
		return nil, err
	}
	if err := issue(client, authority, key, t.CertFile, t.KeyFile); err != nil {
		return nil, err
	}
	t.Certificate, err = tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	return t, err
}

// issue writes a certificate that the authority signs, and its key.
func issue(template, authority *x509.Certificate, authorityKey *ecdsa.PrivateKey, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil {
		return err
	}
	return writePEM(keyFile, "PRIVATE KEY", secret)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
