package weircluster

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"
)

// TestIdentity: a handshake succeeds if both ends have the same secret. Otherwise each of them refuses the
// other, and also one without a certificate.
func TestIdentity(t *testing.T) {
	ours, theirs := bytes.Repeat([]byte{1}, leastSecret), bytes.Repeat([]byte{2}, leastSecret)
	for _, c := range []struct {
		name           string
		server, client []byte
		want           bool
	}{{"the same", ours, ours, true}, {"another", ours, theirs, false}, {"none", ours, nil, false}} {
		server, err := identity(c.server)
		if err != nil {
			t.Fatal(err)
		}
		client, err := identity(c.client)
		if err != nil {
			t.Fatal(err)
		}
		if client == nil {
			client = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as an attacker would
		}
		a, b := net.Pipe()
		served := make(chan error, 1)
		go func() {
			s := tls.Server(a, server)
			err := s.Handshake()
			if err == nil {
				_, err = s.Write([]byte("x")) // tells the client the server's verdict, too
			}
			_ = a.Close()
			served <- err
		}()
		conn := tls.Client(b, client)
		_, readErr := conn.Read(make([]byte, 1))
		_ = b.Close()
		if err := <-served; (err == nil) != c.want || (readErr == nil) != c.want {
			t.Errorf("%s: %v, %v", c.name, err, readErr)
		}
		if c.name == "another" && !errors.Is(readErr, errStranger) {
			t.Errorf("the error does not say that the secrets differ: %v", readErr)
		}
	}
}
