package gateway

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

// Check returns what in a valid policy the gateway cannot serve.
func Check(file *policyfile.File) []policyfile.Problem {
	wrong := withoutUpstream(file)
	if file.Untrusted {
		return wrong
	}
	return append(wrong, checkCertificates(file)...)
}

// withoutUpstream finds the routes with nowhere to send requests to.
func withoutUpstream(file *policyfile.File) (wrong []policyfile.Problem) {
	for i, r := range file.Policy.Routes {
		if r.Upstream == "" {
			wrong = append(wrong, file.Wrong(fmt.Sprintf("the route %s has no upstream, and the gateway sends requests on to one", r.Match),
				"add upstream: NAME, or take listen.gateway out", "routes", strconv.Itoa(i)))
		}
	}
	return wrong
}

// checkCertificates finds the certificates that cannot be used.
func checkCertificates(file *policyfile.File) (wrong []policyfile.Problem) {
	_, wrong = certificatesOf(file)
	return wrong
}

// Expired finds the certificates that have expired. They are served nevertheless: clients decide what to do about that.
func Expired(file *policyfile.File) (wrong []policyfile.Problem) {
	all, _ := certificatesOf(file)
	for i, c := range all {
		if c == nil {
			continue
		}
		for _, x := range c.Expiries() {
			if time.Now().After(x.NotAfter) {
				wrong = append(wrong, file.Wrong(fmt.Sprintf("%s expired on %s: clients will not connect", x.File, x.NotAfter.Format(time.DateOnly)),
					"put a new certificate in its place", tlsPath(file, i)...))
			}
		}
	}
	return wrong
}

// certificatesOf reads the certificates of each listener, nil for one without TLS or with certificates that cannot be used.
func certificatesOf(file *policyfile.File) (all []*listen.Certificates, wrong []policyfile.Problem) {
	for i, l := range file.Policy.Listen.Gateway {
		var c *listen.Certificates
		if l.TLS != nil {
			var err error
			if c, err = listen.LoadCertificates(l.TLS, file.Beside); err != nil {
				wrong = append(wrong, file.Wrong(fmt.Sprintf("the certificates of %s: %v", l.Address, err),
					"name PEM files beside the policy file that belong together", tlsPath(file, i)...))
			}
		}
		all = append(all, c)
	}
	return all, wrong
}

// tlsPath is where a listener has its tls: listen.gateway is one listener or a list of them.
func tlsPath(file *policyfile.File, i int) []string {
	if file.Has("listen", "gateway", "tls") {
		return []string{"listen", "gateway", "tls"}
	}
	return []string{"listen", "gateway", strconv.Itoa(i), "tls"}
}
