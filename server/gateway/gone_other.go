//go:build !linux

package gateway

import "net"

// clientGone cannot be found out on this system. net/http notices clients that disconnect without
// having sent ahead.
func clientGone(net.Conn) bool { return false }
