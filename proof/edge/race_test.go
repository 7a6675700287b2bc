//go:build race

package edge

// buildFlags are for the weir binary: with the race detector, it is built with it too, and exits
// with a code other than 0 after a race.
var buildFlags = []string{"-race"}
