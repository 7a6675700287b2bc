package server

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// endpoint is an address of a policy file, with where it stands there.
type endpoint struct {
	name, address string
	path          []string
}

// endpoints are all addresses that a policy file listens on.
func endpoints(listen *policy.Listen) (all []endpoint) {
	for i, l := range listen.Gateway {
		all = append(all, endpoint{"listen.gateway", l.Address, []string{"listen", "gateway", strconv.Itoa(i)}})
	}
	for _, name := range listen.FaceNames() {
		if address := listen.Address(name); address != "" {
			all = append(all, endpoint{"listen." + name, address, []string{"listen", name}})
		}
	}
	for _, e := range listen.Others {
		if e.RLS.HTTP != "" {
			all = append(all, endpoint{"listen." + e.Face + ".http", e.RLS.HTTP, []string{"listen", e.Face, "http"}})
		}
	}
	return all
}

// checkAddresses finds addresses that two faces would listen on, and upstreams that lead back to
// the gateway.
func checkAddresses(file *policyfile.File) (wrong []policyfile.Problem) {
	listen := &file.Policy.Listen
	all := endpoints(listen)
	for i, e := range all {
		if _, port, err := net.SplitHostPort(e.address); err != nil || !isPort(port) {
			wrong = append(wrong, file.Wrong(fmt.Sprintf("%q is not an address", e.address), "write HOST:PORT, like 127.0.0.1:8080, or [::1]:8080 for IPv6", e.path...))
			continue
		}
		for _, other := range all[:i] {
			if overlap(e.address, other.address) {
				wrong = append(wrong, file.Wrong(fmt.Sprintf("%s and %s cannot both be listened on: %s has that one", e.address, other.address, other.name),
					"choose another port for one of them", e.path...))
				break
			}
		}
	}
	for i := range file.Policy.Upstreams {
		u := &file.Policy.Upstreams[i]
		for j, t := range u.All() {
			path := []string{"upstreams", u.Name, "url"}
			if u.URL == "" {
				path = []string{"upstreams", u.Name, "targets", strconv.Itoa(j)}
			}
			if l := leadsTo(t.URL, listen.Gateway); l != "" {
				wrong = append(wrong, file.Wrong(fmt.Sprintf("%s is where the gateway itself listens (%s): every request would go round in circles", t.URL, l),
					"name the server behind the gateway", path...))
			}
		}
	}
	return wrong
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// overlap reports whether one process cannot listen on two addresses. An address that is not known
// yet, with port 0, overlaps none.
func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return covers(hostA, hostB) || covers(hostB, hostA)
}

// covers reports whether a socket that listens on host also accepts connections to other.
func covers(host, other string) bool {
	if host == "" || host == other {
		return true
	}
	a, errA := addressOf(host)
	b, errB := addressOf(other)
	if errA != nil || errB != nil {
		return false
	}
	return a == b || a == netip.IPv6Unspecified() || a == netip.IPv4Unspecified() && b.Is4()
}

// addressOf reads a host that is an address, or stands for one.
func addressOf(host string) (netip.Addr, error) {
	switch host {
	case "":
		return netip.IPv6Unspecified(), nil // Go listens on it for IPv4, too
	case "localhost":
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap(), err
}

// leadsTo returns the listener that a target's URL leads to, empty for none.
func leadsTo(target string, listeners []policy.Listener) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	for _, l := range listeners {
		host, listens, err := net.SplitHostPort(l.Address)
		if err != nil || listens != port || port == "0" {
			continue
		}
		if isAll(host) && isThisMachine(u.Hostname()) || !isAll(host) && covers(host, u.Hostname()) {
			return l.Address
		}
	}
	return ""
}

// isAll reports whether a host stands for all addresses of this machine.
func isAll(host string) bool {
	a, err := addressOf(host)
	return err == nil && a.IsUnspecified()
}

// isThisMachine reports whether a host is this machine wherever it runs.
func isThisMachine(host string) bool {
	a, err := addressOf(host)
	return err == nil && (a.IsLoopback() || a.IsUnspecified())
}
