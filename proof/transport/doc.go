// Package transport measures clients against an upstream with a limit that they do not know of, or
// know: weirhttp.Transport, and hashicorp/go-retryablehttp and adaptive.Rate beside it. Most of it runs
// in virtual time; what several processes share over a real redis-server runs in real time.
package transport
