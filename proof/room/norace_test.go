//go:build !race

package room

var buildFlags []string
