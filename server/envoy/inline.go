package envoy

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/weirflow/weir/server/policyfile"
)

// longestName bounds the names of limits that are written in descriptors, in bytes: they are labels of
// metrics, and begin the names of states in stores.
const longestName = 200

// escaped returns a text as a part of a limit's name: no two lists of parts have the same name.
func escaped(text string) string {
	var out []byte
	for _, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_', c == '*':
			out = append(out, c)
		default:
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}

// limitName shortens the name of a limit if it is long. It then ends with ~, which no other name has, and
// a hash.
func limitName(full string) string {
	if len(full) <= longestName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	return fmt.Sprintf("%s~%x", full[:longestName-33], sum[:16])
}

// AddTo returns a policy with the limits that descriptors have, in files that were parsed. store is where
// those are kept that name none. The error is a *policyfile.InvalidError.
func (c *Config) AddTo(file *policyfile.File, files []File, store string) (*policyfile.File, error) {
	byFile := map[string][]policyfile.LimitElsewhere{}
	for _, r := range c.rules {
		if r.Inline != nil {
			byFile[r.At.File] = append(byFile[r.At.File], policyfile.LimitElsewhere{Name: r.Limit, Key: keyOf(r.Open), Value: r.Inline})
		}
	}
	var all []policyfile.Elsewhere
	for _, f := range files {
		if limits := byFile[f.Name]; limits != nil {
			all = append(all, policyfile.Elsewhere{File: f.Name, Data: f.Data, Limits: limits})
		}
	}
	return file.WithLimits(all, store)
}

// keyOf returns the key of a limit for which requests choose the values of entries.
func keyOf(open []string) (key []string) {
	for _, name := range open {
		key = append(key, "value."+name)
	}
	return slices.Clip(key)
}
