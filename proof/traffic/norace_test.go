//go:build !race

package traffic

var buildFlags []string
