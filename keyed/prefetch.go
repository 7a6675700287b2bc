//go:build amd64 || arm64

package keyed

// prefetch asks for the cache line at p, and does not wait for it: the clock is read meanwhile. (A
// load would not do, as reading the clock waits for all that were begun before it.)
//
//go:noescape
func prefetch(p *int64)
