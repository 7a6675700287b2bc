//go:build !race

package weir_test

const raced = false
