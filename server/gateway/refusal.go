package gateway

import (
	"mime"
	"path"
	"time"

	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/policy"
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

func newFallbackResponse(r policy.Refused, limits []string, files map[string][]byte) fallbackResponse {
	status := r.StatusCode()
	switch {
	case r.Redirect != "":
		return fallbackResponse{Response: refusal.Redirect(status, r.Redirect)}
	case r.File != "":
		contentType := r.Type
		if contentType == "" {
			contentType = mime.TypeByExtension(path.Ext(r.File))
		}
		return fallbackResponse{Response: refusal.Body(status, contentType, files[r.File])}
	case r.Body != "":
		return fallbackResponse{Response: refusal.Body(status, r.Type, []byte(r.Body))}
	}
	return fallbackResponse{Response: refusal.Default(status, limits...)}
}
