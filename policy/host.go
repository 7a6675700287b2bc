package policy

import (
	"fmt"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// IsHostAmong reports whether a host, with or without a port, is one of a list like shop.example,
// *.shop.example.
func IsHostAmong(host string, list []string) bool {
	host = normalHost(host)
	for _, text := range list {
		if below, wild := strings.CutPrefix(text, "*"); wild {
			text = below
		}
		if hostFits(normalHost(text), host) {
			return true
		}
	}
	return false
}

// ParseHost checks a host of a policy: a name without a port, or *. and a name.
func ParseHost(text string) error {
	if name := strings.TrimPrefix(text, "*."); !httpsyntax.IsHost(name) || strings.HasSuffix(name, ".") || normalHost(name) != strings.ToLower(name) {
		return fmt.Errorf("%q is not a host", text)
	}
	return nil
}
