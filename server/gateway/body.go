package gateway

import (
	"errors"
	"net/http"

	"github.com/weirflow/weir/server/listen"
)

// boundBodies sets the largest body of each route.
func (s *state) boundBodies() {
	for i := range s.routes {
		n := s.file.Policy.Routes[i].MaxBody
		if n == 0 {
			n = s.file.Policy.Listen.Bounds.MaxBody
		}
		s.routes[i].maxBody = max(n, 0)
	}
}

// tooLarge reports whether the announced length of a body exceeds the bound of its route. It comes
// before the limits: a request that is refused for its size is not charged.
func (s *state) tooLarge(route int, length int64) bool {
	return route >= 0 && s.routes[route].maxBody > 0 && length > s.routes[route].maxBody
}

// boundBody bounds a body without a Content-Length.
func (s *state) boundBody(w http.ResponseWriter, r *http.Request, route int) {
	if n := s.routes[route].maxBody; n > 0 && r.Body != nil && r.ContentLength < 0 {
		r.Body = http.MaxBytesReader(w, r.Body, n)
	}
}

// refuseBody refuses a request whose body is too large, without reading it.
func (g *Gateway) refuseBody(w http.ResponseWriter, r *http.Request) {
	g.counts.tooLarge.Add(1)
	endConnection(w, r)
	answer(w, http.StatusRequestEntityTooLarge, "the body of this request is too large")
}

// endConnection makes a response to a request whose body was not read to its end the last one of its connection.
// HTTP/2 ends the stream instead: a client that cancels an upload keeps the connection for its other requests.
func endConnection(w http.ResponseWriter, r *http.Request) {
	if l, ok := w.(*responseWriter); ok {
		r = l.request // as the client has sent it, and not as the upstream gets it
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// badBody reports whether a request failed because its body was too large, too slow or malformed.
func badBody(r *http.Request, err error) bool {
	var large *http.MaxBytesError
	return errors.As(err, &large) || listen.BodyError(r.Context()) != nil
}

// failedBody responds to a request whose body was too large, too slow or malformed, and reports
// whether it was one of these.
func (g *Gateway) failedBody(w http.ResponseWriter, r *http.Request, err error) bool {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		g.refuseBody(w, r)
		return true
	}
	switch wrong := listen.BodyError(r.Context()); {
	case wrong == nil:
		return false
	case errors.Is(wrong, listen.ErrBodySlow):
		g.counts.badBody.Add(1)
		endConnection(w, r)
		answer(w, http.StatusRequestTimeout, "the body of this request came too slowly")
	default:
		g.counts.badBody.Add(1)
		endConnection(w, r)
		answer(w, http.StatusBadRequest, "the body of this request cannot be read")
	}
	return true
}
