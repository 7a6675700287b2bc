package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are chosen from below the range that systems use for outgoing connections: a load test
// takes thousands of those.
const (
	firstPort = 15000
	lastPort  = 31999
)

// An Address is a free loopback address for a server that needs a port number. It is claimed until
// Release: concurrent test processes never choose the same one, neither before the server listens
// there nor while it is down before a restart.
type Address struct {
	Host string // HOST:PORT

	claim net.PacketConn
	once  sync.Once
}

// FreeAddress claims an address where no server listens. The port makes no difference to a test, so
// it is drawn at random: one that was in use lately, and that old clients may still connect to, is
// unlikely to come up again.
func FreeAddress() (*Address, error) {
	var errs []error
	for range 100 {
		host := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort+1))
		// The claim is the UDP port of the same number. No server here uses it, and the system
		// frees it when this process ends.
		claim, err := net.ListenPacket("udp", host)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l, err := net.Listen("tcp", host)
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			return &Address{Host: host, claim: claim}, nil
		}
		errs = append(errs, err, claim.Close())
	}
	return nil, errors.Join(errs...)
}

// Release ends the claim. Further calls do nothing, and neither does one on nil.
func (a *Address) Release() {
	if a != nil {
		a.once.Do(func() { _ = a.claim.Close() }) // nothing was ever sent or read
	}
}

// releaseAfter ends the claim when the process that listens there has ended.
func (a *Address) releaseAfter(p *Process) {
	go func() {
		<-p.Ended()
		a.Release()
	}()
}

// dial reports whether a server listens on an address.
func dial(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
