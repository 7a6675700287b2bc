package stores

import (
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestTable: each product has all required functions, and no two have the same scheme.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range table() {
		if p.Open == nil || len(p.Schemes) == 0 || len(Check(policy.Store{URL: p.Example})) > 0 {
			t.Errorf("%+v is not complete", p)
		}
		for _, s := range p.Schemes {
			if seen[s] || s != strings.ToLower(s) {
				t.Errorf("the scheme %q is there twice, or not in lower case", s)
			}
			seen[s] = true
		}
	}
}

// TestUnknown: the error for an unknown scheme says what to write, without what may be a password.
func TestUnknown(t *testing.T) {
	for url, want := range map[string]string{
		"redi://u:s3cret@h":  `did you mean "redis"?`,
		"mongo://u:s3cret@h": "write one of redis",
		"sqlit:/s3cret":      `did you mean "sqlite"?`,
		"s3cret":             "write it like redis://",
		"sqlite:s3cret.db":   "write it like sqlite:/var/lib/weir/limits.db",
		"SQLite::s3cret":     "write it like sqlite:/var/lib/weir/limits.db",
		"redis:s3cret":       "write it like redis://",
		"":                   "the URL has no scheme",
	} {
		_, err := Open(policy.Store{URL: url}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
		if p := Locate(url); p != (policy.Place{Hosts: url}) {
			t.Errorf("%s leads to %+v", url, p)
		}
	}
}

// TestWrongURL: what is wrong with a URL is said, with how to write it, and without what may be a password.
func TestWrongURL(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:s3cret@h/d?durable=yes":                  "durable is \"yes\": write true or false. write it like postgres://",
		"postgres://u:s3cret@h/d?durable=true&unlogged=true":   "contradict each other",
		"mysql://u:s3cret@h":                                   "the URL names no database",
		"mysql://u:s3cret@a,b/d":                               "several addresses",
		"mysql://u:s3cret@h/d?foo=1":                           "is unknown",
		"nats://u:s3cret@h/b?replicas=9":                       "replicas: write 1 to 5. write it like nats://",
		"nats://u:pass?s3cret@h":                               "unknown parameter",
		"nats://u:a/s3cret*?@h":                                "unknown parameter",
		"nats://h/s3cret*":                                     "the name of the bucket",
		"etcd://u:s3cret@a/b":                                  "it is no URL of this store. write the URL like etcd://",
		"cluster://10.0.0.1:1,10.0.0.2:1?folder=/f":            "two nodes have no majority without each other: list three. write it like cluster://",
		"cluster://10.0.0.1:1,10.0.0.2:1,10.0.0.3:1?folder=/f": "in the URL. write it like cluster://",
		"sqlite:/d/f.db?foo=1":                                 "durable=true is the only one",
	} {
		text := ""
		for _, p := range Check(policy.Store{URL: url}) {
			text += p.Message + ". " + p.Fix + "\n"
		}
		if !strings.Contains(text, want) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: %q, want %q", url, text, want)
		}
	}
}

// TestDeadline: a product may need more time than others; what a policy says comes first.
func TestDeadline(t *testing.T) {
	const nodes = "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?folder=/f"
	for _, c := range []struct {
		def  policy.Store
		want time.Duration
	}{
		{policy.Store{URL: nodes}, 100 * time.Millisecond},
		{policy.Store{URL: "cluster+leaf://127.0.0.1:1"}, 100 * time.Millisecond},
		{policy.Store{URL: nodes, Deadline: 5 * time.Millisecond}, 5 * time.Millisecond},
		{policy.Store{URL: "redis://h"}, 0}, // that of package failover
		{policy.Store{URL: "x"}, 0},
	} {
		if got := Deadline(c.def); got != c.want {
			t.Errorf("%+v: %v, want %v", c.def, got, c.want)
		}
	}
}
