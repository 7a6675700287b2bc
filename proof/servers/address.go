package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports to choose from lie below those that systems give to outgoing connections: of these a load test takes thousands.
const (
	firstPort = 15000
	lastPort  = 31999
)

// freeAddr finds a loopback address where nobody listens now. Somebody may before it is used: whoever uses it has to try again then.
func freeAddr() (string, error) {
	var errs []error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort+1))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// dial reports whether somebody listens on an address.
func dial(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
