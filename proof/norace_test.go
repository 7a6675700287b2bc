//go:build !race

package proof

const checks = "100"
