//go:build !linux

package main

// dropProgramPages does nothing: other systems map what is touched.
func dropProgramPages() error { return nil }
