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
