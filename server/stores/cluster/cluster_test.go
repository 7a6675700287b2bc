package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores/product"
)

// TestCheck: what is wrong with a URL is told with a fix, without a connection, a file, or which node this is.
func TestCheck(t *testing.T) {
	p := Product()
	for _, c := range []struct {
		def  policy.Store
		want string // "": nothing is wrong
	}{
		{policy.Store{URL: p.Example}, ""},
		{policy.Store{URL: "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?folder=/f"}, ""},
		{policy.Store{URL: "cluster+leaf://10.0.0.1:7422?secret_file=/s", Nodes: 4}, ""},
		{policy.Store{URL: "cluster+leaf://10.0.0.1:7422?secret_file=/s"}, "nodes: 6"},
		{policy.Store{URL: "cluster+leaf://10.0.0.1:7422", Nodes: 4}, "secret_file="},
		{policy.Store{URL: "cluster://10.0.0.1:1,10.0.0.1:2,10.0.0.1:3?folder=/f"}, "secret_file="},
		{policy.Store{URL: "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"}, "no folder"},
		{policy.Store{URL: "cluster://127.0.0.1:1,127.0.0.1:2?folder=/f"}, "list three"},
		{policy.Store{URL: "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?folder=/f&x=1"}, "write the URL like"},
		{policy.Store{URL: p.Example, Prefix: "a b"}, "prefix"},
	} {
		all := ""
		for _, problem := range p.Check(c.def) {
			all += problem.Field + ": " + problem.Message + ": " + problem.Fix + "\n"
		}
		if (all == "") != (c.want == "") || !strings.Contains(all, c.want) {
			t.Errorf("%+v: %q, want %q", c.def, all, c.want)
		}
	}
	if n := p.Nodes(p.Example); n != 3 {
		t.Errorf("%d nodes, want 3", n)
	}
}

// TestAt: a process is told which node it is, by the URL or else by its command.
func TestAt(t *testing.T) {
	const three = "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?folder=/f"
	for _, c := range []struct{ url, node, want, err string }{
		{three, "127.0.0.1:2", three + "&node=127.0.0.1%3A2", ""},
		{three + "&node=127.0.0.1:3", "127.0.0.1:2", three + "&node=127.0.0.1:3", ""},
		{"cluster://127.0.0.1:1?folder=/f", "", "cluster://127.0.0.1:1?folder=/f", ""},
		{"cluster+leaf://127.0.0.1:1", "", "cluster+leaf://127.0.0.1:1", ""},
		{three, "", "", "start it with --node 127.0.0.1:1"},
		{three, "127.0.0.1:4", "", "--node 127.0.0.1:4 is none of 127.0.0.1:1"},
	} {
		if got, err := at(c.url, c.node); got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s at %q: %q, %v", c.url, c.node, got, err)
		}
	}
}

// TestTry: weir check opens nothing, and reports a secret that is missing, empty or short.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	p := Product()
	for file, want := range map[string]string{
		write("good", strings.Repeat("a1", 32)+"\n"): "",
		write("short", "s3cret"):                     "the secret has 6 bytes",
		write("empty", "\n"):                         "is empty",
		filepath.Join(dir, "missing"):                "no such file",
	} {
		err := p.Try(policy.Store{URL: "cluster://10.0.0.1:1,10.0.0.2:1,10.0.0.3:1?folder=" + dir + "&secret_file=" + file})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// TestWarn: a secret that every user can read is a warning with what to do, and no error. It does not tell the secret.
func TestWarn(t *testing.T) {
	p := Product()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(strings.Repeat("s3cret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	def := policy.Store{URL: "cluster://10.0.0.1:1,10.0.0.2:1,10.0.0.3:1?folder=/f&secret_file=" + file}
	for mode, warned := range map[os.FileMode]bool{0o400: false, 0o640: false, 0o644: true, 0o604: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		all := p.Warn(def)
		if len(all) > 0 != warned || warned && (!strings.Contains(all[0].Message, file) || !strings.Contains(all[0].Fix, "chmod o= "+file) || strings.Contains(all[0].Message, "s3cret")) {
			t.Errorf("%o: %+v", mode, all)
		}
		if err := p.Try(def); err != nil {
			t.Errorf("%o: %v", mode, err)
		}
	}
	for _, url := range []string{"cluster://127.0.0.1:1?folder=/f", def.URL + ".missing", "cluster://"} {
		if all := p.Warn(policy.Store{URL: url}); len(all) > 0 {
			t.Errorf("%s: %+v", url, all)
		}
	}
}

// TestAdopt: stores with the same URL use one node, which ends with the last of them; another URL is another node.
func TestAdopt(t *testing.T) {
	p := Product()
	def := policy.Store{URL: "cluster://127.0.0.1:1?folder=" + t.TempDir()}
	first, err := p.Open(def, nil)
	if err != nil {
		t.Fatal(err)
	}
	def.Prefix = "other:"
	second, err := first.(product.Adopter).Adopt(def)
	if err != nil || second == nil {
		t.Fatal(second, err)
	}
	if other, err := first.(product.Adopter).Adopt(policy.Store{URL: def.URL + "&max_bytes=1000000"}); other != nil || err != nil {
		t.Errorf("another URL: %v, %v", other, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := second.Ready(ctx); err != nil {
		t.Errorf("the node has ended with the first of its stores: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if late, err := second.(product.Adopter).Adopt(def); late != nil || err != nil {
		t.Errorf("a node that has ended was used again: %v, %v", late, err)
	}
}
