// Package raced keeps the race detector away from searches that have one goroutine.
//
// Such a search has no races, and with the detector it takes five to ten times as long. `make test`
// runs all tests with the race detector, and then those that call Skip without it.
//
// Only tests import this package; imports_test.go checks it.
package raced

// Skip skips a test under the race detector. The test must make its calls from one goroutine, and
// what it calls must be called by concurrent tests too, which the detector watches. The Makefile
// finds these tests by their line raced.Skip(t).
func Skip(t interface {
	Helper()
	Skip(args ...any)
}) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: make test runs this without the race detector")
	}
}
