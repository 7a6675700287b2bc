package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/guard"
	"github.com/weirflow/weir/server/policyfile"
)

// secrets guard the admin address. They are read from files that the policy names.
type secrets struct {
	token string           // empty for none
	cert  *tls.Certificate // nil for none
	audit *auditLog        // which is no secret, and comes with them; nil for none
}

// Bounds on a token, in bytes. The shortest has 64 random bits in hexadecimal.
const (
	shortestToken = 16
	longestToken  = 4096
	maxFile       = 1 << 20 // of a certificate or a key
)

// Check returns what in a valid policy the admin address cannot serve.
func Check(file *policyfile.File) (wrong []policyfile.Problem) {
	a := file.Policy.Admin
	if listen := file.Policy.Listen.Admin; !guard.IsLoopback(listen) && (a.TokenFile == "" || a.Cert == "") {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("listen.admin: %s is not a loopback address: others could change the server", listen),
			"set admin.token_file and admin.tls, or listen on 127.0.0.1 or [::1]", "listen", "admin"))
	}
	if file.Untrusted {
		return wrong
	}
	if _, err := readToken(file); err != nil {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("admin.token_file: %v", err), "make one: openssl rand -hex 32 > FILE", "admin", "token_file"))
	}
	if _, err := readCertificate(file); err != nil {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("admin.tls: %v", err), "name PEM files beside the policy file that belong together", "admin", "tls"))
	}
	if _, err := newAuditLog(file); err != nil {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("admin.audit_log: %v", err), "name a file in a directory that is there, or stderr", "admin", "audit_log"))
	}
	return wrong
}

// Prepare reads the token and the certificate of the next policy.
func (a *Admin) Prepare(_ context.Context, now *active.Snapshot, next active.Candidate) (active.Change, error) {
	if now != nil && (now.File.Policy.Admin.Cert == "") != (next.File.Policy.Admin.Cert == "") {
		return nil, errors.New("admin.tls is added or removed only with a restart: SIGUSR2 restarts the server without losing a request")
	}
	if wrong := Check(next.File); len(wrong) > 0 {
		return nil, &policyfile.InvalidError{Problems: wrong}
	}
	var s secrets
	var err error
	if s.token, err = readToken(next.File); err == nil {
		s.cert, err = readCertificate(next.File)
	}
	if err == nil {
		s.audit, err = newAuditLog(next.File)
	}
	return &secretsChange{a, &s}, err
}

// secretsChange is another token and another certificate.
type secretsChange struct {
	admin   *Admin
	secrets *secrets
}

// Commit puts them in force.
func (c *secretsChange) Commit(*active.Snapshot) {
	c.admin.secrets.Store(c.secrets)
	c.admin.access.setToken(c.secrets.token)
}

// Discard has nothing to give back.
func (c *secretsChange) Discard() {}

// hasToken reports whether callers have to bring a token.
func (a *Admin) hasToken() bool { return a.secrets.Load().token != "" }

// readCertificate reads the certificate that a policy names, nil for none.
func readCertificate(file *policyfile.File) (*tls.Certificate, error) {
	a := file.Policy.Admin
	if a.Cert == "" {
		return nil, nil
	}
	certificate, err := regular.Read(file.Beside(a.Cert), maxFile)
	if err != nil {
		return nil, err
	}
	key, err := regular.Read(file.Beside(a.Key), maxFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return &pair, err
}

// readToken reads the token that a policy names, empty for none. No error holds any of it.
func readToken(file *policyfile.File) (string, error) {
	if file.Policy.Admin.TokenFile == "" {
		return "", nil
	}
	path := file.Beside(file.Policy.Admin.TokenFile)
	data, err := regular.Read(path, longestToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case len(token) < shortestToken:
		return "", fmt.Errorf("the token in %s is shorter than %d characters", path, shortestToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", fmt.Errorf("the token in %s has characters that no header field can have", path)
	}
	return token, nil
}

// secured puts TLS in front of the admin pages where the policy has a certificate for them.
// Handshakes use the certificate of the last update.
func (a *Admin) secured(l net.Listener) net.Listener {
	if a.secrets.Load().cert == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := a.secrets.Load().cert; cert != nil {
				return cert, nil
			}
			return nil, errors.New("no certificate")
		},
	})
}
