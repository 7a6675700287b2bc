//go:build !linux

package plain

func (*hangups) registered() int { return 0 }
