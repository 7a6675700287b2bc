//go:build race

package weir_test

// raced is whether the race detector is on. With it, a sync.Pool sometimes drops an item.
const raced = true
