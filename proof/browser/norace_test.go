//go:build !race

package browser

var buildFlags []string
