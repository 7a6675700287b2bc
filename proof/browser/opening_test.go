package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestOpening: who comes early sees when the room opens and that places are drawn by lot, with nothing to be done. At the
// opening, the page is loaded again by itself: visitors wait at their places, and are admitted. Axe finds nothing serious.
func TestOpening(t *testing.T) {
	b, up := startBrowser(t), startShop(t)
	secret := secretFile(t)
	policy := func(opens time.Duration, rest string) string {
		return roomPolicy(up, fmt.Sprintf("admit: 1/s, burst: 1, opens: %s, secret_file: %s%s", time.Now().Add(opens).UTC().Format(time.RFC3339), secret, rest), "")
	}
	g := startWeir(t, policy(time.Hour, ""))
	p, status := b.open(t, "visitor", "http://"+g.Gateway+"/sale/", map[string]any{"locale": "en-GB"})
	if text := p.text("main"); status != 503 || !strings.Contains(text, "You are early") || !strings.Contains(text, "gets a place by lot") || !strings.Contains(text, "about an hour") || p.text("#weir-place") != "–" {
		t.Fatalf("%d: %s", status, text)
	}
	p.serious("before the opening")
	g.change(t, policy(3*time.Second, ", announce: \"Soon: <b>ten</b> minutes\""))
	p.eval(`document.dispatchEvent(new Event('visibilitychange'))`, nil) // it asks at once if it has not for five seconds
	p.until(`document.title === 'The sale' || document.querySelector('#weir-announce').textContent === 'Soon: <b>ten</b> minutes'`)
	p.until(inside)
	p.quiet("http://" + g.Gateway)
}

// TestPausedPage: the page says that a room is paused and what the operator announces, and that it goes on, without being loaded
// again.
func TestPausedPage(t *testing.T) {
	b, up := startBrowser(t), startShop(t)
	room := "admit: 1/d, burst: 1, secret_file: " + secretFile(t)
	g := startWeir(t, roomPolicy(up, room, ""))
	if _, place := join(t, "http://"+g.Gateway+"/sale/"); place != 0 {
		t.Fatal(place)
	}
	p, _ := b.open(t, "visitor", "http://"+g.Gateway+"/sale/", map[string]any{"locale": "en-GB"})
	p.eval(`window.here = true`, nil)
	g.change(t, roomPolicy(up, room+", pause: true, announce: Back at noon", ""))
	p.until(`document.querySelector('#weir-status').textContent.startsWith('Nobody gets in') && document.querySelector('#weir-announce').textContent === 'Back at noon'`)
	p.serious("paused")
	g.change(t, roomPolicy(up, room, ""))
	p.until(`document.querySelector('#weir-status').textContent === 'You are next.' && document.querySelector('#weir-announce').textContent === ''`)
	var same bool
	p.eval(`window.here === true`, &same)
	if !same {
		t.Error("the page was loaded again")
	}
}
