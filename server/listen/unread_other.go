//go:build !linux

package listen

import "net"

// hasUnread cannot be found out on this system.
func hasUnread(net.Conn) bool { return false }
