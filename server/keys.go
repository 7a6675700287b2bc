package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/weirflow/weir/server/policyfile"
)

// held is what guards the admin address: what is read from files that the policy names.
type held struct {
	token string           // empty for none
	cert  *tls.Certificate // nil for none
}

// keys are those in force.
type keys struct{ now atomic.Pointer[held] }

func (k *keys) set(h held) { k.now.Store(&h) }

func (k *keys) get() held {
	if h := k.now.Load(); h != nil {
		return *h
	}
	return held{}
}

// Bounds on a token, in bytes. The shortest is that of 64 random bits, written in hexadecimal.
const (
	shortestToken = 16
	longestToken  = 4096
)

// beside is the path of a file that a policy names: what is not absolute is beside the policy file.
func beside(file *policyfile.File, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file.Path), name)
}

// readKeys reads the token and the certificate of a policy.
func readKeys(file *policyfile.File) (h held, err error) {
	a := file.Policy.Admin
	if a.TokenFile != "" {
		if h.token, err = readToken(beside(file, a.TokenFile)); err != nil {
			return held{}, fmt.Errorf("admin.token_file: %w", err)
		}
	}
	if a.Cert != "" {
		cert, err := tls.LoadX509KeyPair(beside(file, a.Cert), beside(file, a.Key))
		if err != nil {
			return held{}, fmt.Errorf("admin.tls: %w", err)
		}
		h.cert = &cert
	}
	return h, nil
}

// readToken reads a token. No error holds any of it.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, longestToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case len(token) < shortestToken:
		return "", fmt.Errorf("the token in %s is shorter than %d characters: make one with openssl rand -hex 32", path, shortestToken)
	case len(data) > longestToken:
		return "", fmt.Errorf("%s is longer than %d bytes", path, longestToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", fmt.Errorf("the token in %s has characters that no header field can have: make one with openssl rand -hex 32", path)
	}
	return token, nil
}

// reachable says what is lacking for an admin address that others can reach.
func reachable(file *policyfile.File) error {
	listen, a := file.Policy.Listen.Admin, file.Policy.Admin
	if listen == "" || isLoopback(listen) {
		return nil
	}
	if a.TokenFile == "" || a.Cert == "" {
		return fmt.Errorf("%s: listen.admin: %s is not a loopback address: set admin.token_file and admin.tls, or stay on 127.0.0.1 or [::1]", file.Path, listen)
	}
	return nil
}

// secured puts TLS before the admin pages, where the policy has a certificate for them. The certificate is that of the last reload.
func (c *control) secured(l net.Listener) net.Listener {
	if c.keys.get().cert == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := c.keys.get().cert; cert != nil {
				return cert, nil
			}
			return nil, errors.New("no certificate")
		},
	})
}
