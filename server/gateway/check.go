package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/room"
)

// Check returns what in a policy the gateway cannot serve.
func Check(file *policyfile.File) []policyfile.Problem {
	wrong := withoutUpstream(file)
	if file.Untrusted {
		return wrong
	}
	wrong = append(wrong, checkCertificates(file)...)
	wrong = append(wrong, checkRooms(file)...)
	return append(wrong, checkAccessLog(file)...)
}

// checkRooms finds waiting rooms whose secrets cannot be read.
func checkRooms(file *policyfile.File) (wrong []policyfile.Problem) {
	for _, r := range file.Policy.Rooms {
		if r.SecretFile == "" {
			continue
		}
		if _, err := room.ReadSecrets(file.Beside(r.SecretFile)); err != nil {
			wrong = append(wrong, file.Wrong(err.Error(), "make one: openssl rand -hex 32 > FILE; chmod 600 FILE", "waiting_rooms", r.Name, "secret_file"))
		}
	}
	return wrong
}

// checkAccessLog finds an access log that cannot be written. It does not create the file.
func checkAccessLog(file *policyfile.File) []policyfile.Problem {
	name := file.Policy.AccessLog.File
	if name == "" || name == "stdout" || name == "stderr" {
		return nil
	}
	path := file.Beside(name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	if err == nil {
		f.Close()
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		info, dirErr := os.Stat(filepath.Dir(path))
		if dirErr == nil && info.IsDir() {
			return nil
		}
	}
	return []policyfile.Problem{file.Wrong(fmt.Sprintf("access_log: %v", err), "name a file that weir may write, in a directory that exists", "access_log")}
}

// withoutUpstream finds the routes with nowhere to send requests to.
func withoutUpstream(file *policyfile.File) (wrong []policyfile.Problem) {
	for i, r := range file.Policy.Routes {
		if r.Upstream == "" && !r.Respond.IsSet() && !file.HasErrorIn("routes", strconv.Itoa(i)) {
			wrong = append(wrong, file.Wrong(fmt.Sprintf("the route %s has no upstream, and the gateway sends requests on to one", r.Match),
				"add upstream: NAME or respond: { ... }, or take listen.gateway out", "routes", strconv.Itoa(i)))
		}
	}
	return wrong
}

// checkCertificates finds the certificates that cannot be used.
func checkCertificates(file *policyfile.File) (wrong []policyfile.Problem) {
	_, wrong = certificatesOf(file)
	return wrong
}

// Expired finds the certificates that have expired. They are served nevertheless: clients decide
// what to do about that.
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

// certificatesOf reads the certificates of each listener, nil for one without TLS or with
// certificates that cannot be used.
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
