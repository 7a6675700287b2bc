package listen

import (
	"bufio"
	"net"
	"net/http"
	"strings"
)

// onlyWebSocket removes every other upgrade from a request, as a server may: requests behind an
// upgrade like h2c would bypass the limits.
func onlyWebSocket(r *http.Request) {
	if u := r.Header["Upgrade"]; len(u) != 1 || !strings.EqualFold(u[0], "websocket") {
		delete(r.Header, "Upgrade")
	}
	delete(r.Header, "Http2-Settings")
}

// upgradable is the response to a request for an upgrade.
type upgradable struct {
	http.ResponseWriter
	body *pacedBody // nil for none
}

// Hijack takes the connection over, and tells the guard, which checks nothing from then on.
func (u *upgradable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	if u.body != nil {
		u.body.release()
	}
	switch c := conn.(type) {
	case *guard:
		c.release()
	case secure:
		c.release()
	}
	return conn, rw, nil
}

// Unwrap is for http.ResponseController.
func (u *upgradable) Unwrap() http.ResponseWriter { return u.ResponseWriter }
