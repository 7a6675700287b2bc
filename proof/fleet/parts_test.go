package fleet

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary)) }

// upstream is the upstream of the gateways; it records when requests come.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	came []time.Time
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.came = append(u.came, time.Now())
		u.mu.Unlock()
		io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(u.Close)
	return u
}

// gateway is a running weir whose policy file can be changed.
type gateway struct{ *servers.Reloadable }

// startWeir serves a policy, which is given without listen.
func startWeir(t *testing.T, policy string) *gateway {
	t.Helper()
	g := &gateway{servers.PolicyIn(t, t.TempDir(), servers.FreePorts+policy)}
	g.Start(t, binary)
	return g
}

func (g *gateway) write(t *testing.T, policy string) {
	t.Helper()
	g.Write(t, servers.FreePorts+policy)
}

// get makes a request, and returns its status and header fields.
func (g *gateway) get(t *testing.T, path string) (int, http.Header) {
	resp, err := http.Get("http://" + g.Gateway + path)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

// has reports whether a line is among the metrics.
func (g *gateway) has(t *testing.T, line string) bool {
	t.Helper()
	return strings.Contains(g.Metrics(t), line+"\n")
}

// value returns a metric as text.
func (g *gateway) value(t *testing.T, metric string) string {
	t.Helper()
	_, after, _ := strings.Cut(g.Metrics(t), "\n"+metric+" ")
	text, _, _ := strings.Cut(after, "\n")
	return text
}
