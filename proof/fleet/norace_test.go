//go:build !race

package fleet

var buildFlags []string
