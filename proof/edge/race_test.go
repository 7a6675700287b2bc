//go:build race

package edge

// buildFlags are for the weir binary: under the race detector it runs under it too, and ends with another code than 0 after a race.
var buildFlags = []string{"-race"}
