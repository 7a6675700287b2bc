// Package cluster describes nodes that keep the limits themselves as a product, through weircluster: a store of it
// runs a part of the cluster in this process.
package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weircluster"
)

// deadline is how long a call may take by default. A decision is two trips and a write at a majority, by nodes that
// also serve requests: on a busy machine one in a hundred takes longer than the 20 ms of other stores.
const deadline = 100 * time.Millisecond

// Product returns the description for the table of stores.
func Product() product.Product {
	p := product.KV([]string{"cluster", "cluster+leaf"}, "cluster://10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222?secret_file=/etc/weir/cluster.secret&folder=/var/lib/weir", open, locate)
	p.At = at
	p.Deadline = deadline
	p.Nodes = func(url string) int {
		o, _, _ := weircluster.ParseURL(url)
		return len(o.Nodes)
	}
	p.Try, p.Warn = try, warn
	check := p.Check
	p.Check = func(def policy.Store) []product.Problem {
		all := check(def)
		if o, _, err := weircluster.ParseURL(def.URL); err == nil && len(o.Leaf) > 0 && def.Nodes == 0 {
			all = append(all, product.Problem{Field: "url", Message: "a leaf node does not know how many nodes share the limits", Fix: "write how many there are, leaf nodes included: nodes: 6"})
		}
		return all
	}
	return p
}

// locate returns where a URL leads, and checks a URL, too, as far as that is possible without its files and without knowing which node this is.
func locate(address string) (hosts []string, rest string, err error) {
	o, secretFile, err := weircluster.ParseURL(address)
	if err != nil {
		return nil, "", err
	}
	if secretFile != "" {
		o.Secret = make([]byte, 32)
	}
	if o.Node == "" && len(o.Nodes) > 0 {
		o.Node = o.Nodes[0]
	}
	hosts = slices.Concat(o.Nodes, o.Leaf)
	slices.Sort(hosts)
	if err := o.Check(); err != nil {
		if errors.Is(err, weircluster.ErrNoSecret) {
			err = fmt.Errorf("%w; its file is named by secret_file=/etc/weir/cluster.secret in the URL", err)
		}
		return hosts, "", err
	}
	return hosts, "cluster/" + o.Bucket, nil
}

// at adds which node this process is to a URL that does not say so.
func at(address, node string) (string, error) {
	o, _, err := weircluster.ParseURL(address)
	switch {
	case err != nil:
		return "", err
	case o.Node != "" || len(o.Nodes) < 2:
		return address, nil
	case node == "":
		return "", fmt.Errorf("this node is one of %s: start it with --node %s, or another of them", strings.Join(o.Nodes, ", "), o.Nodes[0])
	case !slices.Contains(o.Nodes, node):
		return "", fmt.Errorf("--node %s is none of %s", node, strings.Join(o.Nodes, ", "))
	}
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	return address + separator + "node=" + url.QueryEscape(node), nil
}

// maxSecret bounds the size of a file with a secret.
const maxSecret = 64 << 10

// options are those of a URL, with the secret. Which node this is may be missing.
func options(address string) (weircluster.Options, error) {
	o, secretFile, err := weircluster.ParseURL(address)
	if err != nil || secretFile == "" {
		return o, err
	}
	text, err := regular.Read(secretFile, maxSecret)
	if err != nil {
		return o, fmt.Errorf("secret_file: %w", err)
	}
	if o.Secret = bytes.TrimSpace(text); len(o.Secret) == 0 {
		return o, fmt.Errorf("secret_file: %s is empty: put a secret into it with openssl rand -hex 32", secretFile)
	}
	return o, nil
}

// warn tells of a secret that every user of the machine can read. It is no error, as mounted secrets often are so.
func warn(def policy.Store) []product.Problem {
	_, secretFile, err := weircluster.ParseURL(def.URL)
	if err != nil || secretFile == "" {
		return nil
	}
	info, err := os.Stat(secretFile)
	if err != nil || info.Mode().Perm()&0o004 == 0 {
		return nil // try tells of a file that is missing
	}
	return []product.Problem{{
		Field: "url", Message: fmt.Sprintf("secret_file: every user of this machine can read %s (mode %04o), and could join the cluster", secretFile, info.Mode().Perm()),
		Fix: "run chmod o= " + secretFile + ", or mount it with mode 0440",
	}}
}

// try returns why a store could not be opened by any of the nodes.
func try(def policy.Store) error {
	o, err := options(def.URL)
	if err != nil {
		return err
	}
	if o.Node == "" && len(o.Nodes) > 0 {
		o.Node = o.Nodes[0]
	}
	return o.Check()
}
