package weircluster

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"time"
)

// errStranger is the error of a handshake with a node that does not know the secret.
var errStranger = errors.New("weircluster: the other node has another secret")

// identity returns the TLS configuration of all nodes with a secret. They have one key, which is derived from
// it, and accept no other, so that there are no certificates to hand out and none that expire. nil without a
// secret.
func identity(secret []byte) (*tls.Config, error) {
	if len(secret) == 0 {
		return nil, nil
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "weir: the key of the nodes of a cluster", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "weir"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir"}}, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert,
		// VerifyConnection is stricter: it accepts one key, whatever the names and times of a certificate
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) > 0 {
				if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); ok && subtle.ConstantTimeCompare(theirs, public) == 1 {
					return nil
				}
			}
			return errStranger
		},
	}, nil
}
