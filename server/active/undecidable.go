package active

import (
	"log/slog"
	"sync"

	"github.com/weirflow/weir"
)

// undecidableLines is how often the log tells of each limit: a client may ask for a key that the store
// cannot decide about all the time.
func undecidableLines() weir.Limit { return weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1} }

// mostUndecidable is how many limits are remembered: more than a policy has. When reloads have brought more
// names than that, all are forgotten.
const mostUndecidable = 1024

// logUndecidable returns a function that logs that a store cannot decide about a key of a limit. The
// line does not have the key, which may be a customer's.
func logUndecidable(log *slog.Logger) func(limit string, err error) {
	var mu sync.Mutex
	told := map[string]*weir.Limiter{}
	allow := func(limit string) bool {
		mu.Lock()
		defer mu.Unlock()
		l := told[limit]
		if l == nil {
			if len(told) >= mostUndecidable {
				clear(told)
			}
			l, _ = weir.New(undecidableLines()) // a valid limit
			told[limit] = l
		}
		return l.Allow()
	}
	return func(limit string, err error) {
		if allow(limit) {
			log.Warn("requests of a limit are refused: its store works, but cannot decide about their key; weir_limit_store_undecidable_total counts them",
				"limit", limit, "error", err)
		}
	}
}
