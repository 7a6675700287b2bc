package servers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
)

// Memcached starts memcached on a free address, or on addr if that is not empty.
func Memcached(ctx context.Context, addr string) (*Server, error) {
	path, err := Program("memcached", "memcached")
	if err != nil {
		return nil, err
	}
	free, addr, err := freeUnless(addr)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p, err := start(syscall.SIGTERM, exec.Command(path, "-u", "root", "-l", host, "-p", port, "-U", "0", "-m", "64", "-M"))
	if err != nil {
		free.Release()
		return nil, err
	}
	free.releaseAfter(p)
	if err := p.until(ctx, func(context.Context) error { return dial(addr) }); err != nil {
		return nil, err
	}
	return &Server{Process: p, Addr: addr}, nil
}

// freeUnless claims a free address if addr is empty.
func freeUnless(addr string) (*Address, string, error) {
	if addr != "" {
		return nil, addr, nil
	}
	free, err := FreeAddress()
	if err != nil {
		return nil, "", err
	}
	return free, free.Host, nil
}

// An EtcdServer is a member of an etcd cluster. Stopped, it can be started again with its data.
type EtcdServer struct {
	*Process
	Addr string // HOST:PORT for clients

	args   []string
	claims []*Address
}

// Etcd starts a cluster of n members with their data below dir, and waits until it has a leader.
func Etcd(ctx context.Context, dir string, n int) (all []*EtcdServer, err error) {
	var cluster []string
	for i := range n {
		clients, err := FreeAddress()
		if err != nil {
			return all, err
		}
		peers, err := FreeAddress()
		if err != nil {
			return all, err
		}
		name := fmt.Sprintf("m%d", i)
		cluster = append(cluster, name+"=http://"+peers.Host)
		all = append(all, &EtcdServer{Addr: clients.Host, claims: []*Address{clients, peers}, args: []string{
			"--name", name, "--data-dir", dir + "/" + name, "--listen-client-urls", "http://" + clients.Host, "--advertise-client-urls", "http://" + clients.Host,
			"--listen-peer-urls", "http://" + peers.Host, "--initial-advertise-peer-urls", "http://" + peers.Host, "--initial-cluster-token", dir,
			"--heartbeat-interval", "50", "--election-timeout", "500",
		}})
	}
	for _, s := range all {
		s.args = append(s.args, "--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new")
		if err := s.Start(); err != nil {
			return all, err
		}
	}
	return all, all[0].until(ctx, all[0].Healthy)
}

// Start starts a member that does not run.
func (s *EtcdServer) Start() error {
	path, err := Program("etcd", "etcd-server")
	if err != nil {
		return err
	}
	s.Process, err = start(syscall.SIGTERM, exec.Command(path, s.args...))
	return err
}

// Healthy returns why the member cannot write.
func (s *EtcdServer) Healthy(ctx context.Context) error {
	_, err := s.post(ctx, "/v3/kv/put", `{"key":"aGVhbHRo","value":"MQ=="}`)
	return err
}

// RequireLogin makes the member and its cluster refuse all calls without a login. root may do everything.
func (s *EtcdServer) RequireLogin(ctx context.Context, rootPassword string) error {
	for _, step := range []struct{ path, body string }{
		{"/v3/auth/user/add", fmt.Sprintf(`{"name":"root","password":%q}`, rootPassword)},
		{"/v3/auth/role/add", `{"name":"root"}`},
		{"/v3/auth/user/grant", `{"user":"root","role":"root"}`},
		{"/v3/auth/enable", `{}`},
	} {
		if _, err := s.post(ctx, step.path, step.body); err != nil {
			return fmt.Errorf("etcd: %s: %w", step.path, err)
		}
	}
	return nil
}

// Leads reports whether the member is the leader.
func (s *EtcdServer) Leads(ctx context.Context) bool {
	text, err := s.post(ctx, "/v3/maintenance/status", "{}")
	member, _, _ := strings.Cut(after(text, `"member_id":"`), `"`)
	leader, _, _ := strings.Cut(after(text, `"leader":"`), `"`)
	return err == nil && member == leader
}

func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return rest
}

func (s *EtcdServer) post(ctx context.Context, path, body string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// Stop ends the member and frees its addresses. It kills it: after SIGTERM, etcd ends itself by that signal too,
// which looks like a failure.
func (s *EtcdServer) Stop() error {
	if s.Process != nil {
		s.Kill()
	}
	for _, a := range s.claims {
		a.Release()
	}
	return nil
}
