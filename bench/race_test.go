//go:build race

package main

// heavy is how many times more memory the race detector needs.
const heavy = 10
