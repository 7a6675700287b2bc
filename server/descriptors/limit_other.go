//go:build !unix

package descriptors

// Current returns no reserve: sockets are not numbered here.
func Current() Reserve { return Reserve{} }
