//go:build race

package proof

// checks is how often rapid draws for a property, unless -rapid.checks says so: with the race detector each takes several times as long.
const checks = "15"
