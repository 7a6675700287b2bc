//go:build race

package weir_test

// raced is whether the race detector is on, which lets a sync.Pool lose what it is given, now and then.
const raced = true
