//go:build !race

package edge

var buildFlags []string
