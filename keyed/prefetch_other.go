//go:build !amd64 && !arm64

package keyed

func prefetch(*int64) {}
