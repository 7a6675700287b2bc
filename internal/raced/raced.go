// Package raced keeps the race detector away from searches that have one goroutine.
//
// Such a search has no races, and with the detector it takes five to ten times as long. `make test`
// runs all tests with the race detector, and then, without it, all tests of the packages that
// import this one.
//
// Only tests import this package; imports_test.go checks it.
package raced

// Skip skips a test under the race detector. The test must start no goroutines, and all that it
// calls must be called by concurrent tests too, which the detector watches.
func Skip(t interface {
	Helper()
	Skip(args ...any)
}) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: make test also runs this package without the race detector")
	}
}
