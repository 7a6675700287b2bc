package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports to choose from lie below those that systems give to outgoing connections: of these a load
// test takes thousands.
const (
	firstPort = 15000
	lastPort  = 31999
)

// An Address is a free loopback address for a server that takes a port number. It is claimed until
// Release: test processes that run side by side never choose the same one, neither before the
// server listens there nor while it is down to be started again.
type Address struct {
	Host string // HOST:PORT

	claim net.PacketConn
	once  sync.Once
}

// FreeAddress claims an address where nobody listens. Which port it is makes no difference to a
// test, so it is drawn at random: one that was in use lately, whose old clients may still be trying
// to connect, is unlikely to come up again.
func FreeAddress() (*Address, error) {
	var errs []error
	for range 100 {
		host := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort+1))
		// The claim is the UDP port of the same number, which no server here uses, and which the
		// system frees when this process ends.
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

// dial reports whether somebody listens on an address.
func dial(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
