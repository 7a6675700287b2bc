//go:build !linux

package plain

import "syscall"

// hangups needs epoll. Without it, a connection is read while its request waits for longer than
// unwatched.
type hangups struct{}

func newHangups() *hangups                         { return nil }
func (*hangups) add(*conn, syscall.RawConn) uint64 { return 0 }
func (*hangups) remove(uint64)                     {}
func (*hangups) close()                            {}
