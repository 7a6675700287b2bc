package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
)

func suggestionOf(t *testing.T, o Options, log string) *Suggestion {
	t.Helper()
	o.Inputs = []Input{{"log", strings.NewReader(log)}}
	s, err := Suggest(t.Context(), o, []float64{99, 90})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dayOfClients is a log of clients of whom some send much more than others.
func dayOfClients(name string, clients int) string {
	rng := seeds.Of(name)
	log := ""
	for second := range 1200 {
		for range rng.IntN(6) {
			log += logLine(fmt.Sprintf("10.0.%d.%d", rng.IntN(2), int(rng.ExpFloat64()*float64(clients)/8)%clients), 4*second, "/")
		}
	}
	return log
}

// TestSuggestionsHold: a replay of each suggestion limits as many clients as it says, which are at most the share
// that it may, also on another day.
func TestSuggestionsHold(t *testing.T) {
	t.Logf("WEIR_SEED=%s", seeds.Text())
	nasa, err := os.ReadFile("testdata/nasa-1995-08-01.clf.log")
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range []string{string(nasa), dayOfClients("one", 200)} {
		s := suggestionOf(t, Options{}, log)
		for _, l := range s.Limits {
			for i, f := range l.Front {
				rate, err := weir.ParseRate(f.Rate)
				if err != nil {
					t.Fatal(err)
				}
				r, _ := run1(t, Options{Policy: perClient(weir.TokenBucket{Rate: rate, Burst: f.Burst})}, log)
				if r.Clients.Limited != f.Limited || r.Clients.Seen != s.Clients || float64(f.Limited) > float64(s.Clients)*(1-l.Percent/100) {
					t.Errorf("%v %%, %s with burst %d: %d of %d clients are limited, and %d of %d are said to be", l.Percent, f.Rate, f.Burst, r.Clients.Limited, r.Clients.Seen, f.Limited, s.Clients)
				}
				if i > 0 && f.Burst >= l.Front[i-1].Burst {
					t.Errorf("%+v is no better than %+v", l.Front[i-1], f)
				}
			}
		}
	}
	l := suggestionOf(t, Options{}, dayOfClients("one", 200)).Limits[1]
	rate, _ := weir.ParseRate(l.Front[l.Best].Rate)
	r, _ := run1(t, Options{Policy: perClient(weir.TokenBucket{Rate: rate, Burst: l.Front[l.Best].Burst})}, dayOfClients("another", 200))
	if !l.Sure || r.Clients.Limited*10 > r.Clients.Seen {
		t.Errorf("on another day, %d of %d clients are limited", r.Clients.Limited, r.Clients.Seen)
	}
}

// TestShortLogs: a log that shows only a moment promises nothing of other days, however many clients are in it.
func TestShortLogs(t *testing.T) {
	moment, hour := "", ""
	for i := range 500 {
		moment += logLine(fmt.Sprintf("10.0.%d.%d", i/250, i%250), 0, "/")
		hour += logLine(fmt.Sprintf("10.0.%d.%d", i/250, i%250), i*3600/499, "/")
	}
	for log, short := range map[string]bool{moment: true, hour: false} {
		s := suggestionOf(t, Options{}, log)
		if s.Short != short || s.Limits[0].Sure == short || strings.Contains(s.YAML(), "There is room for days with more.") == short || strings.Contains(s.YAML(), "too few") {
			t.Errorf("short is %v, sure %v, want %v:\n%s", s.Short, s.Limits[0].Sure, short, s.YAML())
		}
	}
}

// TestBotsAndMonitors: programs are known by their names, and by what they do.
func TestBotsAndMonitors(t *testing.T) {
	log := ""
	line := func(client string, second int, target, agent string) {
		log += strings.TrimSuffix(logLine(client, second, target), "\n") + ` "-" "` + agent + "\"\n"
	}
	for i := range 40 {
		line("10.0.0.1", i*30, "/", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)")
		line("10.0.0.2", i*30+1, "/health", "kube-probe/1.29")
		line("10.0.0.3", i*30+2, "/status", "Mozilla/5.0")
		line("10.0.0.4", i*30+i%7, fmt.Sprint("/", i%3), "Mozilla/5.0 (X11; Linux x86_64) Firefox/121.0")
		line("10.0.0.5", i*30+3, "/<script>", "evil\x1b[2Jbot\u202e")
	}
	line("10.0.0.6", 1300, "/robots.txt", "-")
	s := suggestionOf(t, Options{}, log)
	want := map[string]string{"Googlebot": "bot", "kube-probe": "monitor", "asks for one path at regular times": "monitor", "reads /robots.txt": "bot"}
	for _, n := range s.Named {
		if kind, ok := want[n.Name]; ok && n.Kind == kind && n.Clients == 1 {
			delete(want, n.Name)
		} else if strings.ContainsAny(n.Name, "\x1b\u202e") {
			t.Errorf("a name that is not harmless: %q", n.Name)
		}
	}
	if len(want) > 0 || s.Clients != 6 || s.Bots != 3 || s.Monitors != 2 {
		t.Errorf("%+v, without %v", s, want)
	}
	var out strings.Builder
	if err := s.WriteText(&out); err != nil || strings.ContainsAny(out.String(), "\x1b\u202e") {
		t.Errorf("%v, %q", err, out.String())
	}
	if text, err := json.Marshal(s); err != nil || !strings.Contains(string(text), `"yaml":"limits:`) {
		t.Errorf("%s, %v", text, err)
	}
	// only what a route with limits matches
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "l", Key: []string{"client.ip"}, Limit: tenAMinute}},
		Routes: []policy.Route{{Match: "/health"}, {Match: "/status", Limits: []string{"l"}}},
	}
	if s := suggestionOf(t, Options{Policy: p}, log); s.Requests != 40 || s.Clients != 1 {
		t.Errorf("%+v", s)
	}
	if s := suggestionOf(t, Options{}, ""); s.Clients != 0 || s.YAML() != "" || s.WriteText(&out) != nil {
		t.Errorf("nothing at all: %+v", s)
	}
}

// TestCompare: the counts are those of two replays, line by line.
func TestCompare(t *testing.T) {
	t.Logf("WEIR_SEED=%s", seeds.Text())
	log := dayOfClients("compare", 60)
	a, b := perClient(weir.TokenBucket{Rate: weir.PerMinute(3), Burst: 4}), perClient(weir.LeakyBucket{Rate: weir.PerMinute(6), Queue: 2})
	c, err := Compare(t.Context(), Options{Policy: a, Inputs: []Input{{"log", strings.NewReader(log)}}}, b)
	if err != nil {
		t.Fatal(err)
	}
	_, byA := run1(t, Options{Policy: a}, log)
	_, byB := run1(t, Options{Policy: b}, log)
	did := map[string]int{"allow": 0, "delay": 1, "deny": 2}
	var want [3][3]int64
	clients := map[string][2]bool{}
	linesA, linesB, lines := strings.Split(byA, "\n"), strings.Split(byB, "\n"), strings.Split(log, "\n")
	for i := range lines[:len(lines)-1] {
		da, db := did[strings.Split(linesA[i], "\t")[1]], did[strings.Split(linesB[i], "\t")[1]]
		want[da][db]++
		client, _, _ := strings.Cut(lines[i], " ")
		was := clients[client]
		clients[client] = [2]bool{was[0] || da == 2, was[1] || db == 2}
	}
	var onlyA, onlyB, both int64
	for _, by := range clients {
		switch by {
		case [2]bool{true, false}:
			onlyA++
		case [2]bool{false, true}:
			onlyB++
		case [2]bool{true, true}:
			both++
		}
	}
	if c.Outcomes != want || c.OnlyA != onlyA || c.OnlyB != onlyB || c.Both != both || c.Clients != int64(len(clients)) || c.differ() == 0 || len(c.Most) == 0 {
		t.Errorf("%+v; counted %v, %d, %d, %d of %d", c, want, onlyA, onlyB, both, len(clients))
	}
	var out strings.Builder
	if err := c.WriteText(&out); err != nil || !strings.Contains(out.String(), "A limits") {
		t.Errorf("%v, %s", err, out.String())
	}
	if text, err := json.Marshal(c); err != nil || !strings.Contains(string(text), fmt.Sprintf(`"limited_only_by_a":%d,`, onlyA)) {
		t.Errorf("%s, %v", text, err)
	}
}
