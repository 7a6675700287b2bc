package policyfile

import (
	"errors"
	"strings"
	"testing"
)

// TestIndentation: problems of indentation have a fix in columns.
func TestIndentation(t *testing.T) {
	for text, want := range map[string]string{
		"limits:\n\ta:\n\t\tkey: host\n":                             "x.yaml:2:1: error: the line is indented with a tab\n\tfix: indent it with spaces",
		"limits:\n  a:\n    key: host\n   cost: 1\n":                 "x.yaml:4:4: error: the indentation of this line fits none of the lines above it\n\tfix: indent it by 0, 2 or 4 spaces, not 3",
		"routes:\n- match: /\n limits: [a]\n":                        "x.yaml:3:2: error: the indentation of this line fits none of the lines above it\n\tfix: indent it by 0 or 2 spaces, not 1",
		"limits:\n  a:\n      key: host\n    cost: 1\nroutes: []\n":  "indent it by 0, 2 or 6 spaces, not 4",
		"limits:\n  a: key: host\n":                                  "x.yaml:2:6: error: there are two keys in one line\n\tfix: put the second one on the next line",
		"limits:\n  a: { key: host\nroutes: []\n":                    "x.yaml:2:6: error: this { is not closed\n\tfix: close it with }",
		"limits:\n  a: { key: [host, path }\nroutes: []\n":           "is not closed",
		"limits: {}\nroutes: [{ match: /, upstream: up\n":            "x.yaml:2:10: error: this { is not closed\n\tfix: close it with }",
		"limits:\n  a: { token_bucket: { rate: 10, burst: 1 } }\n":   "x.yaml:2:30: error: a rate is a count and a duration, like 10/s or 10/m: the duration is missing\n\tfix: rate: 10/s",
		"limits:\n  a: { token_bucket: { rate: 5rps, burst: 1 } }\n": "did you mean 5/s?",
		"routes: [{ path: / }]\n":                                    "there is no key \"path\" here\n\tfix: match: /",
		"limits:\n- a: { key: host }\n":                              "x.yaml:1:1: error: this is a list, and must be a map\n\tfix: write the names without a - in front of them",
		"limits: [1]\n":                                              "x.yaml:1:1: error: this is a list, and must be a map\n\tfix: limits: { per-client: { key: client.ip, token_bucket: { rate: 10/s, burst: 20 } } }",
		"limits: { a: { per: host } }\n":                             "there is no key \"per\" here\n\tfix: key: host",
		"listen: { gateway: \"127.0.0.1:x\" }\n":                     "is not an address\n\tfix: write HOST:PORT",
		"limits:\n  a: { key: host }\n  a: { key: path }\n":          "x.yaml:3:3: error: \"a\" is there twice, first in line 2\n\tfix: take one of them out",
		"limits: { a: { key: ip } }\n":                               "\"ip\" is not a part of a key",
	} {
		_, err := Parse("x.yaml", []byte(text))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %q", text, err, want)
		}
	}
}
