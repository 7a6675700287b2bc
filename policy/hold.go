package policy

import "slices"

// When a request leaves the concurrency limits of its route.
const (
	HoldUntilClientLeaves = "until_client_leaves" // with its response, or when its client leaves: it is cut off at the upstream
	HoldUntilUpstreamEnds = "until_upstream_ends" // with the upstream's response, which is read to its end if the client leaves
)

var holds = []string{HoldUntilClientLeaves, HoldUntilUpstreamEnds}

// hold checks when the requests of a route leave its concurrency limits, and that there is an upstream
// for which their bodies could be buffered.
func (c *checker) hold(r *Route, at string) {
	switch {
	case r.Hold == "":
	case !slices.Contains(holds, r.Hold):
		c.wrong("\""+r.Hold+"\" is not a moment at which a request leaves concurrency limits", suggest(r.Hold, holds), "routes", at, "hold")
	case r.Upstream == "" && r.Respond.IsSet():
		c.wrong("hold is about requests to an upstream, and this route has none", "take hold out", "routes", at, "hold")
	}
	c.buffer(r.BufferRequest, "routes", at, "buffer_request")
	if r.BufferRequest != (Buffer{}) && r.Upstream == "" && r.Respond.IsSet() {
		c.wrong("buffer_request is about requests to an upstream, and this route has none", "take buffer_request out", "routes", at, "buffer_request")
	}
}
