package room

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

// TestTicketsSurviveARestart: a gateway without a store is killed, and another one is started in
// its place. Visitors who were inside pass, and waiting ones have their places in their order,
// whichever polls first.
func TestTicketsSurviveARestart(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := strings.NewReplacer("UP", up.URL, "SECRET", secret).Replace(`
waiting_rooms: { sale: { admit: 1/d, burst: 1, secret_file: SECRET } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /sale/, upstream: up, waiting_room: sale }]
`)
	g := startWeir(t, policy)
	c := &crowd{t: t, random: seeds.Of(t.Name()), client: http.DefaultClient}
	c.dead.Store(true) // there is only one gateway
	c.gateways[1] = g.Gateway
	status, _, inside := c.ask("")
	if status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	tickets := make([]string, 5)
	for i := range tickets {
		_, _, tickets[i] = c.ask("")
	}
	g.Kill()
	c.gateways[1] = startWeir(t, policy).Gateway
	if status, _, _ := c.ask(inside); status != http.StatusOK {
		t.Errorf("who was inside: %d", status)
	}
	for _, i := range []int{3, 1, 4, 0, 2} {
		status, a, ticket := c.ask(tickets[i])
		if status != http.StatusServiceUnavailable || a.State != "waiting" {
			t.Errorf("number %d: %d %+v", i+1, status, a)
		}
		tickets[i] = ticket
	}
	for i, ticket := range tickets {
		if _, a, _ := c.ask(ticket); a.Place != int64(i+1) {
			t.Errorf("number %d: %+v", i+1, a)
		}
	}
}
