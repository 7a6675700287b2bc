//go:build race

package proof

// checks is the default of -rapid.checks, the number of cases per property. With the race detector
// each takes several times as long.
const checks = "15"
