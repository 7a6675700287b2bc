package upstream

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestBytesKeepAnUpgradedConnectionOpen: a byte in either direction begins the time of
// Timeouts.Upgraded anew, and the connection is closed once it has been silent for that time.
func TestBytesKeepAnUpgradedConnectionOpen(t *testing.T) {
	for name, move := range map[string]func(c *upgraded, target net.Conn) error{
		"from the client": func(c *upgraded, target net.Conn) error {
			go io.CopyN(io.Discard, target, 1)
			_, err := c.Write([]byte("."))
			return err
		},
		"from the target": func(c *upgraded, target net.Conn) error {
			go target.Write([]byte("."))
			_, err := c.Read(make([]byte, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gateway, target := net.Pipe()
				a := &attempt{s: &settings{spec: Spec{Upstream: policy.Upstream{Timeouts: policy.Timeouts{Upgraded: time.Hour}}}}}
				c := newUpgraded(gateway, a, func(error) {})
				for range 5 {
					<-time.After(time.Hour - time.Second)
					if err := move(c, target); err != nil {
						t.Fatal(err)
					}
				}
				quiet := time.Now()
				if _, err := c.Read(make([]byte, 1)); err == nil || time.Since(quiet) != time.Hour {
					t.Errorf("closed after %v: %v", time.Since(quiet), err)
				}
			})
		})
	}
}
