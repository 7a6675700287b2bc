package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

// askJSON makes a request as an app does.
func askJSON(t *testing.T, url, ticket string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	if ticket != "" {
		r.Header.Set("Weir-Ticket", ticket)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Weir-Room") == "new" { // the visitor comes back with the ticket
		return askJSON(t, url, resp.Header.Get("Weir-Ticket"))
	}
	buf := make([]byte, 4096)
	n, _ := resp.Body.Read(buf)
	return resp, string(buf[:n])
}

const roomPolicy = `
waiting_rooms: { sale: { ROOM } }
limits: { few: { key: client.ip, token_bucket: { rate: 1/d, burst: 1 } } }
upstreams: { up: { url: "URL" } }
routes:
  - { match: /sale/, upstream: up, waiting_room: sale, limits: [few] }
  - { match: /, upstream: up }
`

// TestWaitingRoomBeforeLimits: the room comes before the limits. A waiting visitor is charged by no
// limit, and an admitted one that a limit refuses keeps the ticket. Other routes are not affected.
// A reload keeps the queue, and removing the room admits everybody.
func TestWaitingRoomBeforeLimits(t *testing.T) {
	g, front, log := start(t, strings.ReplaceAll(roomPolicy, "ROOM", "admit: 1/d, burst: 2"), echo)
	first, _ := askJSON(t, front.URL+"/sale/", "")
	if first.StatusCode != 200 || first.Header.Get("Weir-Ticket") == "" || first.Header.Get("RateLimit") == "" {
		t.Fatalf("%d %v", first.StatusCode, first.Header)
	}
	second, _ := askJSON(t, front.URL+"/sale/", "")
	if second.StatusCode != 429 || second.Header.Get("Weir-Ticket") == "" {
		t.Errorf("let in, and refused by the limit: %d %v", second.StatusCode, second.Header)
	}
	third, text := askJSON(t, front.URL+"/sale/", "")
	if third.StatusCode != 503 || third.Header.Get("RateLimit") != "" || !strings.Contains(text, `"place":1`) {
		t.Errorf("%d %s", third.StatusCode, text)
	}
	if other, _ := askJSON(t, front.URL+"/other", ""); other.StatusCode != 200 || other.Header.Get("Weir-Ticket") != "" {
		t.Errorf("another route: %d", other.StatusCode)
	}
	if n := g.Counts(); n.Waiting != 4 || n.Allowed != 2 || n.Limited != 1 {
		t.Errorf("%+v", n)
	}
	if !strings.Contains(log.String(), "without a secret_file") {
		t.Errorf("%s", log)
	}
	upstream := g.File().Policy.Upstreams[0].URL
	update := func(text string) error {
		f, err := policyfile.Parse(filepath.Join(t.TempDir(), "policy.yaml"), []byte(strings.ReplaceAll(text, "URL", upstream)))
		if err != nil {
			t.Fatal(err)
		}
		return g.Update(f)
	}
	if err := update(strings.ReplaceAll(roomPolicy, "ROOM", "admit: 1/d, burst: 2, secret_file: nothing")); err == nil || !strings.Contains(err.Error(), "waiting_rooms.sale: secret_file") {
		t.Errorf("%v", err)
	}
	if err := update(strings.ReplaceAll(roomPolicy, "ROOM", "admit: 1/d, burst: 3, title: Another")); err != nil {
		t.Fatal(err)
	}
	ticket := third.Header.Get("Weir-Ticket")
	fourth, text := askJSON(t, front.URL+"/sale/", ticket) // one more may be inside
	if fourth.StatusCode != 429 || g.Rooms()[0].Entered != 3 {
		t.Errorf("after the reload: %d %s %+v", fourth.StatusCode, text, g.Rooms())
	}
	if err := update(strings.NewReplacer("waiting_rooms: { sale: { ROOM } }", "", "waiting_room: sale, ", "").Replace(roomPolicy)); err != nil {
		t.Fatal(err)
	}
	if resp, _ := askJSON(t, front.URL+"/sale/", ""); resp.StatusCode != 429 || resp.Header.Get("Weir-Room") != "" || len(g.Rooms()) != 0 {
		t.Errorf("without the room: %d", resp.StatusCode)
	}
}

// TestSecretsOfARoom: with a secret in a file beside the policy, a ticket is valid at another
// gateway. A file that other users can read is refused.
func TestSecretsOfARoom(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("ROOM", "admit: 1/d, burst: 1, secret_file: "+filepath.Join(dir, "secret"), "limits: [few]", "limits: []").Replace(roomPolicy)
	_, one, log := start(t, text, echo)
	_, two, _ := start(t, text, echo)
	resp, _ := askJSON(t, one.URL+"/sale/", "")
	askJSON(t, two.URL+"/sale/", "") // its only place
	if at, _ := askJSON(t, two.URL+"/sale/", resp.Header.Get("Weir-Ticket")); at.StatusCode != 200 {
		t.Errorf("at the other one: %d", at.StatusCode)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("%s", log)
	}
}
