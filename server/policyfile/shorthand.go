package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/policy"
)

// shorthand returns the map that was probably meant by a single value in its place, with its key, such
// as app: { url: http://127.0.0.1:9000 } for app: http://127.0.0.1:9000; "" if that is unclear.
func (s *schema) shorthand(at []string, value *node) string {
	if len(at) == 0 || value == nil || value.shape != scalar {
		return ""
	}
	name, written := at[len(at)-1], text(value)
	with := func(field string) string { return fmt.Sprintf("%s: { %s: %s }", name, field, written) }
	_, number := value.value.(int64)
	_, err := weir.ParseRate(written)
	switch isURL := strings.Contains(written, "://"); {
	case len(at) == 2 && (at[0] == "upstreams" || at[0] == "stores") && isURL:
		return with("url")
	case len(at) == 2 && at[0] == "waiting_rooms" && err == nil:
		return with("admit")
	case len(at) == 2 && at[0] == "limits" && err == nil:
		return fmt.Sprintf("%s: { key: client.ip, token_bucket: { rate: %s, burst: 20 } }", name, written)
	case len(at) == 1 && name == "listen" && written != "":
		return with("gateway")
	case name == "timeouts" && !number && written != "":
		return with("response")
	case name == "health" && strings.HasPrefix(written, "/"):
		return with("path")
	case name == "health":
		return "health: { path: /healthz }"
	case (name == "refused" || name == "failed" || name == "respond") && number:
		return with("status")
	case (name == "refused" || name == "failed" || name == "respond") && written != "":
		return fmt.Sprintf("%s: { body: %q }", name, written)
	case name == "adaptive" && slices.Contains(policy.AdaptiveAlgorithms(), written):
		return fmt.Sprintf("adaptive: { %s: {} }", written)
	case name == "adaptive":
		return "adaptive: {}"
	case name == "waiting" && number:
		return with("max")
	case len(at) == 3 && at[0] == "limits" && slices.Contains(policy.Algorithms(), name):
		return name + ": " + s.algorithmWith(at, written, number)
	}
	return ""
}

// algorithmWith returns the parameters of an algorithm of which only the rate or the limit was
// written.
func (s *schema) algorithmWith(at []string, written string, number bool) string {
	all := s.example(at)
	if meant := nearest.Rate(written); !number && meant != "" && strings.Contains(all, "rate: 100/s") {
		return strings.Replace(all, "rate: 100/s", "rate: "+meant, 1)
	}
	if number {
		return strings.Replace(all, "limit: 100", "limit: "+written, 1)
	}
	return all
}
