//go:build race

package main

// heavy is how much more memory the race detector needs.
const heavy = 10
