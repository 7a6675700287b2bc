package endpoint

import (
	"fmt"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/guard"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

// Check returns what keeps the endpoint of a face from being served: programs of other machines could use
// up limits, or its certificates cannot be used.
func Check(file *policyfile.File, face string) (wrong []policyfile.Problem) {
	e, ok := file.Policy.Listen.Endpoint(face)
	if !ok {
		return nil
	}
	if !guard.IsLoopback(e.Address) && !e.Insecure && !knowsClients(e) {
		wrong = append(wrong, file.Wrong(fmt.Sprintf("listen.%s: %s is not a loopback address, and %s", face, e.Address, lacks(e)),
			fix(face, e), "listen", face))
	}
	if file.Untrusted || e.TLS == nil {
		return wrong
	}
	if _, err := listen.LoadCertificates(e.TLS, file.Beside); err != nil && len(e.TLS.Certificates) > 0 {
		wrong = append(wrong, unusable(file, face, err))
	}
	return wrong
}

// knowsClients reports whether clients prove who they are, over TLS.
func knowsClients(e policy.Endpoint) bool {
	if e.TLS == nil {
		return false
	}
	return e.Tokens != "" || e.Users != "" || e.TLS.ClientCA != "" && e.TLS.ClientAuth != "optional"
}

// lacks says what an endpoint lacks that others can reach.
func lacks(e policy.Endpoint) string {
	switch {
	case e.TLS == nil && (e.Tokens != "" || e.Users != ""):
		return "secrets would be sent in plain text"
	case e.TLS == nil:
		return "any program on the network could use up limits"
	case e.TLS.ClientCA != "":
		return "client_auth: optional accepts clients that nobody knows"
	}
	return "TLS alone does not say who its clients are"
}

// fix returns what to write for an endpoint that others can reach.
func fix(face string, e policy.Endpoint) string {
	cert := "cert: FILE, key: FILE"
	if e.TLS != nil && len(e.TLS.Certificates) > 0 {
		cert = fmt.Sprintf("cert: %s, key: %s", e.TLS.Certificates[0].Cert, e.TLS.Certificates[0].Key)
	}
	secure := fmt.Sprintf("%s: { address: %q, tls: { %s, client_ca: FILE } }", face, e.Address, cert)
	switch {
	case e.Tokens != "" && e.TLS == nil:
		secure = fmt.Sprintf("%s: { address: %q, tls: { %s }, tokens: %s }", face, e.Address, cert, e.Tokens)
	case e.Users != "" && e.TLS == nil:
		secure = fmt.Sprintf("%s: { address: %q, tls: { %s }, users: %s }", face, e.Address, cert, e.Users)
	}
	secrets := map[string]string{"http": "tokens: FILE", "resp": "users: FILE"}[face]
	if secrets != "" && e.Tokens == "" && e.Users == "" {
		secure += ", or " + secrets + " in place of client_ca"
	}
	return "write " + secure + "; or insecure: true, if only machines that you trust reach the address"
}

func unusable(file *policyfile.File, face string, err error) policyfile.Problem {
	return file.Wrong(fmt.Sprintf("the certificates of listen.%s: %v", face, err), "name PEM files beside the policy file that belong together", "listen", face, "tls")
}
