package weirhttp

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestFieldValuesAreKept: the fields of a response stay as they were set, whatever fields other
// responses get, and however long they are.
func TestFieldValuesAreKept(t *testing.T) {
	names := []string{"short", strings.Repeat("x", 300), strings.Repeat("y", blockText), strings.Repeat("z", 2*blockText)}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			var kept [400]http.Header
			at := func(i int) []policy.Evaluated {
				n := int64(1000*g + i)
				return []policy.Evaluated{{Name: names[i%len(names)], Limit: n + 1, Decision: weir.Decision{Allowed: true, Remaining: n}}}
			}
			for i := range kept {
				kept[i] = http.Header{}
				SetRateLimit(kept[i], at(i))
				SetXRateLimit(kept[i], at(i))
			}
			for i, h := range kept {
				a := at(i)[0]
				n, limit := strconv.FormatInt(a.Decision.Remaining, 10), strconv.FormatInt(a.Limit, 10)
				for name, want := range map[string]string{
					"Ratelimit": `"` + a.Name + `";r=` + n + ";t=0", "Ratelimit-Policy": `"` + a.Name + `";q=` + limit,
					"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": n, "X-Ratelimit-Reset": "0",
				} {
					if got := h[name]; len(got) != 1 || got[0] != want {
						t.Errorf("%s: %q, want %q", name, got, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
}
