package server

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/weirflow/weir/server/policyfile"
)

//go:embed demo.yaml
var demoPolicy string

const demoText = `weir serves its demo policy: 5 requests a second for each client, 10 at once.

  gateway  http://%s   in front of a demo upstream on http://%s
  admin    http://%s   /healthz /readyz /metrics

Try it:

  for i in $(seq 15); do curl -s -o /dev/null -w '%%{http_code}\n' http://%s/; done

`

// startDemo starts the demo upstream and makes the policy in front of it.
func (s *server) startDemo() (*policyfile.File, error) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello from the demo upstream: %s %s got through.\n", r.Method, r.URL.Path)
	})
	const addr = "127.0.0.1:9000"
	var err error
	if s.addrs.Demo, err = s.listen(demoServer, addr, hello); err != nil {
		if s.addrs.Demo, err = s.listen(demoServer, "127.0.0.1:0", hello); err != nil { // somebody has that port
			return nil, err
		}
	}
	if _, _, err := net.SplitHostPort(s.addrs.Demo); err != nil {
		return nil, errors.New("the demo upstream has no address")
	}
	return policyfile.Parse("(demo)", []byte(strings.ReplaceAll(s.demo, addr, s.addrs.Demo)))
}
