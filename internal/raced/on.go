//go:build race

package raced

// Enabled is whether the race detector is on.
const Enabled = true
