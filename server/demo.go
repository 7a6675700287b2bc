package server

import (
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policyfile"
)

//go:embed demo.yaml
var demoPolicy string

const demoText = `weir serves its demo policy: 5 requests a second for each client, 10 at once.

  gateway  http://%s   in front of a demo upstream on http://%s
  admin    http://%s   /healthz /readyz /metrics
  rls      %s   Envoy rate limit service and ext_authz (gRPC)
  http     http://%s   POST /v1/take, and /auth for proxies
  resp     redis://%s   CL.THROTTLE KEY MAX_BURST COUNT PERIOD

Try it:

  for i in $(seq 15); do curl -s -o /dev/null -w '%%{http_code}\n' http://%s/; done

`

// startDemo starts the demo upstream and makes the policy in front of it.
func (s *server) startDemo() (*policyfile.File, error) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello from the demo upstream: %s %s got through.\n", r.Method, r.URL.Path)
	})
	const address = "127.0.0.1:9000"
	l, err := net.Listen("tcp", address)
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { // another program has that port
			return nil, err
		}
	}
	s.demoUp = face.NewHTTP(l, hello, s.Log)
	s.serve("the demo upstream", s.demoUp)
	return policyfile.Parse("(demo)", []byte(strings.ReplaceAll(s.demo, address, l.Addr().String())))
}
