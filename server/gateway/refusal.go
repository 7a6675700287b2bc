package gateway

import (
	"time"

	"github.com/weirflow/weir/internal/refusal"
)

// fallbackResponse is the compiled response to requests that a limit refused, or whose upstream
// failed.
type fallbackResponse struct {
	refusal.Response

	stale    time.Duration // send the last good response first, up to this age; 0 is never
	upstream string        // of that response
	other    *forwarder    // then try another upstream; nil for none
	own      bool          // the policy names no status
	plain    bool          // and no body, file or redirect
}
