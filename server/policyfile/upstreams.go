package policyfile

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/policy"
)

// UpstreamTLS is the TLS configuration for the targets of an upstream.
type UpstreamTLS struct {
	Config *tls.Config // do not modify
	Digest [32]byte    // of all settings and files, so that it changes when a file changes
}

func (d *decoder) upstream(name string, n *node) policy.Upstream {
	at := func(words ...string) []string { return append([]string{"upstreams", name}, words...) }
	u := policy.Upstream{
		Name:        name,
		URL:         text(n.get("url")),
		Protocol:    text(n.get("protocol")),
		MaxRequests: d.count(n.get("max_requests"), 0, at("max_requests")...),
		MaxIdle:     d.count(n.get("max_idle"), 0, at("max_idle")...),
		Retries:     d.retries(n.get("retries"), at("retries")...),

		BufferRequest: d.buffer(n.get("buffer_request"), at("buffer_request")...),
		Adaptive:      d.adaptive(n.get("adaptive"), at("adaptive")...),
	}
	for i, t := range items(n.get("targets")) {
		u.Targets = append(u.Targets, d.target(t, at("targets", strconv.Itoa(i))...))
	}
	t := n.get("tls")
	u.TLS = policy.UpstreamTLS{
		CA:          text(t.get("ca")),
		ServerName:  text(t.get("server_name")),
		Certificate: text(t.get("certificate")),
		Key:         text(t.get("key")),
		Insecure:    truth(t.get("insecure")),
	}
	w := n.get("timeouts")
	u.Timeouts = policy.Timeouts{
		Connect:  d.duration(w.get("connect"), "5s", at("timeouts", "connect")...),
		Response: d.duration(w.get("response"), "60s", at("timeouts", "response")...),
		Idle:     d.duration(w.get("idle"), "5m", at("timeouts", "idle")...),
		Upgraded: d.duration(w.get("upgraded"), "1h", at("timeouts", "upgraded")...),
	}
	h := n.get("health")
	u.Health = policy.Health{
		Path:      text(h.get("path")),
		Host:      text(h.get("host")),
		Every:     d.duration(h.get("every"), "5s", at("health", "every")...),
		Timeout:   d.duration(h.get("timeout"), "2s", at("health", "timeout")...),
		DownAfter: d.count(h.get("down_after"), 0, at("health", "down_after")...),
		UpAfter:   d.count(h.get("up_after"), 0, at("health", "up_after")...),
		Failures:  d.count(h.get("failures"), -1, at("health", "failures")...),
		DownFor:   d.duration(h.get("down_for"), "10s", at("health", "down_for")...),
		AllDown:   text(h.get("all_down")),
	}
	if h != nil && u.Health.Path == "" {
		for _, word := range []string{"host", "every", "timeout", "down_after", "up_after"} {
			if h.get(word) != nil {
				d.wrong(word+" is about asking the targets, and there is no path to ask for", "add path: /healthz, or take "+word+" out", at("health", word)...)
			}
		}
	}
	return u
}

// buffer reads how much of a request body is buffered: off, or a map.
func (d *decoder) buffer(n *node, path ...string) (b policy.Buffer) {
	switch {
	case n == nil:
	case n.shape == scalar && text(n) == "off":
		b.Off = true
	case n.shape == scalar:
		d.wrong(fmt.Sprintf("%q is not how requests are buffered", text(n)), "write off, or { memory: 1MiB, file: 100MiB }", path...)
	default:
		b.Memory = d.size(n.get("memory"), 1, slices.Concat(path, []string{"memory"})...)
		b.File = d.size(n.get("file"), 1, slices.Concat(path, []string{"file"})...)
		if n.get("memory") == nil && n.get("file") == nil {
			d.wrong("buffer_request has no settings", "buffer_request: { memory: 1MiB, file: 100MiB }", path...)
		}
	}
	return b
}

// target reads a target: its URL, or a map with it.
func (d *decoder) target(n *node, path ...string) policy.Target {
	if n.shape == scalar {
		return policy.Target{URL: text(n), Weight: 1}
	}
	t := policy.Target{URL: text(n.get("url")), Weight: d.count(n.get("weight"), 0, append(path, "weight")...)}
	if n.get("weight") == nil {
		t.Weight = 1
	}
	return t
}

// count reads a number for which 0 means none. The policy has a special value for that, because its
// 0 means the default.
func (d *decoder) count(n *node, none int, path ...string) int {
	v := number(n)
	switch {
	case n == nil || n.shape != scalar:
		return 0
	case v == 0 && none == 0:
		d.wrong("0 is not a number for this", "write at least 1, or take it out", path...)
	case v == 0:
		return none
	case v < 0 || v > 1<<31-1:
		d.wrong(fmt.Sprintf("%d is not a number for this", v), "write at least 1, or take it out", path...)
		return 0
	}
	return int(v)
}

// retries reads a number of retries, or a map with it.
func (d *decoder) retries(n *node, path ...string) policy.Retries {
	if n == nil || n.shape == scalar {
		return policy.Retries{Max: d.count(n, -1, path...)}
	}
	r := policy.Retries{Max: d.count(n.get("max"), -1, append(path, "max")...)}
	if written := text(n.get("budget")); written != "" {
		digits, percent := strings.CutSuffix(written, "%")
		v, err := strconv.Atoi(digits)
		if err != nil || !percent || v < 1 || v > 100 {
			d.wrong(fmt.Sprintf("%q is not a part of the requests", written), "write one from 1% to 100%, like 20%", append(path, "budget")...)
			return r
		}
		r.Budget = v
	}
	return r
}

func (d *decoder) waiting(n *node, path ...string) policy.Waiting {
	return policy.Waiting{
		Max:       d.count(n.get("max"), 0, append(path, "max")...),
		PerClient: d.count(n.get("per_client"), 0, append(path, "per_client")...),
		Timeout:   d.duration(n.get("timeout"), "5m", append(path, "timeout")...),
	}
}

// upstreamTLS reads the certificates and keys that upstreams name, relative to the directory of the
// policy file.
func (f *File) upstreamTLS(root *node) {
	for i := range f.Policy.Upstreams {
		u := &f.Policy.Upstreams[i]
		if (u.TLS == policy.UpstreamTLS{}) {
			continue
		}
		r := tlsReader{file: f, root: root, upstream: u.Name}
		config := r.config(&u.TLS)
		if f.UpstreamTLS == nil {
			f.UpstreamTLS = map[string]UpstreamTLS{}
		}
		f.UpstreamTLS[u.Name] = UpstreamTLS{config, sha256.Sum256(r.all)}
	}
}

// tlsReader builds the TLS configuration of one upstream.
type tlsReader struct {
	file     *File
	root     *node
	upstream string
	all      []byte // the contents of all files
}

func (r *tlsReader) config(t *policy.UpstreamTLS) *tls.Config {
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Insecure, MinVersion: tls.VersionTLS12}
	r.all = fmt.Appendf(nil, "%q %t", t.ServerName, t.Insecure)
	if ca := r.read(t.CA, "ca"); ca != nil {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(ca) {
			r.wrong(t.CA+" has no certificate", "name a file in PEM, with -----BEGIN CERTIFICATE-----", "ca")
		}
	}
	certificate, key := r.read(t.Certificate, "certificate"), r.read(t.Key, "key")
	if certificate != nil && key != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			r.wrong("certificate and key cannot be used: "+strings.TrimPrefix(err.Error(), "tls: "), "name files in PEM that belong together", "certificate")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// read returns the contents of a file, or nil if no file is named or it cannot be read.
func (r *tlsReader) read(name, word string) []byte {
	if name == "" {
		return nil
	}
	data, err := readSmall(r.file.Beside(name), name)
	if err != nil {
		r.wrong(err.Error(), "name a file beside the policy file, that weir may read", word)
		return nil
	}
	r.all = append(fmt.Appendf(r.all, " %s %d ", word, len(data)), data...)
	return data
}

func (r *tlsReader) wrong(msg, fix, word string) {
	r.file.add(r.root, finding{path: []string{"upstreams", r.upstream, "tls", word}, msg: msg, fix: fix}, false)
}
