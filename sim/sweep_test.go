package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
)

func sweepOf(t *testing.T, g *Grid, keys, clients int, log string) *SweepReport {
	t.Helper()
	r, err := sweepWith(t.Context(), Options{Inputs: []Input{{"log", strings.NewReader(log)}}}, g, keys, clients)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSweepIsReplays: each combination has the counts of a replay of its policy alone, and its clients are those of
// the lines that the replay refused.
func TestSweepIsReplays(t *testing.T) {
	nasa, err := os.ReadFile("testdata/nasa-1995-08-01.clf.log")
	if err != nil {
		t.Fatal(err)
	}
	rng := seeds.Of(t.Name())
	t.Logf("WEIR_SEED=%s", seeds.Text())
	random := ""
	for range 800 {
		random += logLine(fmt.Sprintf("10.0.0.%d", rng.IntN(1+rng.IntN(60))), rng.IntN(600), "/")
	}
	two := policy.Policy{
		Limits: []policy.Limit{
			{Name: "all", Limit: weir.TokenBucket{Rate: weir.PerSecond(2), Burst: 30}},
			{Name: "client", Key: []string{"client.ip"}, Limit: weir.LeakyBucket{Rate: weir.PerMinute(1), Queue: 1}, Shadow: true},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"all", "client"}}},
	}
	for _, c := range []struct {
		policy policy.Policy
		texts  []string
		log    string
		want   int
	}{
		{perClient(tenAMinute), []string{"rate=2/m..10/m burst=1..5"}, string(nasa), 3 * 3},
		{perClient(tenAMinute), []string{"burst=1..10", "rate=1/m,1/s"}, random, 4 * 2},
		{two, []string{"limit=client", "rate=1/m,7/m", "queue=0,3"}, random, 2 * 2},
		{two, []string{"limit=all rate=1/m,3/s"}, string(nasa), 2},
	} {
		g, err := NewGrid(c.policy, c.texts...)
		if err != nil {
			t.Fatal(err)
		}
		sweep := sweepOf(t, g, sweepKeys, sweepClients, c.log)
		if len(sweep.Combinations) != c.want {
			t.Errorf("%v: %d combinations", c.texts, len(sweep.Combinations))
		}
		lines := strings.Split(c.log, "\n")
		clientOf := func(line string) string { client, _, _ := strings.Cut(line, " "); return policy.ClientKeyOf(client) }
		limited := int64(0)
		for _, got := range sweep.Combinations {
			alone, err := g.policyOf(got.Values)
			if err != nil {
				t.Fatal(err)
			}
			r, decisions := run1(t, Options{Policy: alone}, c.log)
			all, refused := map[string]bool{}, map[string]bool{}
			for line := range strings.Lines(decisions) {
				fields := strings.Split(line, "\t")
				n, err := strconv.Atoi(fields[0])
				if err != nil {
					t.Fatal(err)
				}
				all[clientOf(lines[n-1])] = true
				if fields[1] == "deny" {
					refused[clientOf(lines[n-1])] = true
				}
			}
			if want := (Combination{Values: got.Values, Limited: r.Limited, Delayed: r.Delayed, Clients: int64(len(refused))}); !equalCombination(got, want) {
				t.Errorf("%v: got %+v, a replay says %+v", c.texts, got, want)
			}
			if sweep.Requests != r.Requests || sweep.First != r.First || sweep.Last != r.Last || sweep.Clients != int64(len(all)) || sweep.Sampled {
				t.Errorf("%v: got %+v, a replay says %+v", c.texts, sweep, r)
			}
			limited += got.Limited
		}
		if limited == 0 {
			t.Errorf("%v limited nothing", c.texts)
		}
	}
}

func equalCombination(a, b Combination) bool {
	return slices.Equal(a.Values, b.Values) && a.Limited == b.Limited && a.Delayed == b.Delayed && a.Clients == b.Clients && a.Forgotten == b.Forgotten
}

// TestSweepOfMoreClientsThanItKeeps: clients beyond the bound are estimated, and the report says so; so it does if
// keys did not fit.
func TestSweepOfMoreClientsThanItKeeps(t *testing.T) {
	log := ""
	for i := range 4000 {
		client := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		log += logLine(client, 0, "/")
		if i%4 == 0 {
			log += logLine(client, 1, "/")
		}
	}
	g, err := NewGrid(perClient(tenAMinute), "burst=1,2")
	if err != nil {
		t.Fatal(err)
	}
	r := sweepOf(t, g, sweepKeys, 1000, log)
	one, two := r.Combinations[0], r.Combinations[1]
	// 500 to 1000 clients are in the sample: its error is below 20 %, with a margin
	if !r.Sampled || r.Clients < 3200 || r.Clients > 4800 || one.Clients < 800 || one.Clients > 1200 || two.Clients != 0 {
		t.Errorf("%+v", r)
	}
	if one.Limited != 1000 || two.Limited != 0 || r.Forgotten != 0 {
		t.Errorf("%+v", r)
	}
	r = sweepOf(t, g, 64, 1000, log)
	text, err := json.Marshal(r)
	var out bytes.Buffer
	if r.WriteText(&out); r.Forgotten == 0 || err != nil || !strings.Contains(out.String(), "was forgotten") || !strings.Contains(out.String(), "estimates from a sample") || !strings.Contains(string(text), `"forgotten":`) || !strings.Contains(string(text), `"sampled":true`) {
		t.Errorf("%v %s %s", err, out.String(), text)
	}
}

func TestSweepReports(t *testing.T) {
	log := logLine("a", 0, "/") + logLine("a", 0, "/") + logLine("b", 0, "/") + "rubbish\n" + logLine("a", 0, "/")
	g, err := NewGrid(perClient(tenAMinute), "rate=10/m", "burst=1..2")
	if err != nil {
		t.Fatal(err)
	}
	r := sweepOf(t, g, sweepKeys, sweepClients, log)
	text, err := json.Marshal(r)
	want := `{"requests":4,"unparsed":1,"clients":2,"limit":"per-client","combinations":[` +
		`{"rate":"10/m","burst":"1","limited":2,"limited_percent":50.0000,"delayed":0,"clients_limited":1,"clients_limited_percent":50.0000},` +
		`{"rate":"10/m","burst":"2","limited":1,"limited_percent":25.0000,"delayed":0,"clients_limited":1,"clients_limited_percent":50.0000}]}`
	if err != nil || string(text) != want || len(r.Samples) != 1 {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestGrids(t *testing.T) {
	p := perClient(tenAMinute)
	several, windows := p, perClient(weir.FixedWindow{})
	several.Limits = append(slices.Clone(p.Limits), policy.Limit{Name: "b", Limit: tenAMinute})
	for _, c := range []struct {
		policy policy.Policy
		text   string
		want   string
	}{
		{p, "rate", `"rate" is not of the form PARAMETER=VALUES`},
		{p, "rate=", `"rate=" is not of the form`},
		{p, "rate=1/s rate=2/s", "rate= is written twice"},
		{p, "limit=per-client", "no parameter varies"},
		{p, "queue=1..2", `the limit per-client has no parameter "queue" that can be varied: it has rate and burst`},
		{windows, "rate=1/s..2/s", "the limit per-client has no rate"},
		{policy.Policy{}, "rate=1/s..2/s", "has no limits"},
		{several, "rate=1/s..2/s", "say which one varies, with limit=NAME; it has per-client, b"},
		{several, "limit=c rate=1/s..2/s", "limit=c: the policy has no such limit; it has per-client, b"},
		{p, "rate=100/s..1/s", "rate=100/s..1/s: its end is before its beginning: write 1/s..100/s"},
		{p, "rate=1/s..100/m", "write both with the same unit"},
		{p, "rate=1..100", `rate=1..100: rate "1": no slash`},
		{p, "rate=unlimited", "no rate to compare"},
		{p, "burst=1..x", `burst=1..x: "x" is not a whole number`},
		{p, "burst=-1", "is not a whole number"},
		{p, "burst=5,5", "5 is written twice"},
		{p, "rate=1/s..1000000000/s burst=1..1000000000", "these are 784 combinations, and 256 is the most"},
		{p, "burst=" + strings.Repeat("1,", 300), "is written twice"},
	} {
		if _, err := NewGrid(c.policy, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
	g, err := NewGrid(p, "burst=0,1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Sweep(t.Context(), Options{}, g); err == nil || !strings.HasPrefix(err.Error(), "with burst=0: ") {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{"1..200": "[1 2 5 10 20 50 100 200]", "3..70": "[3 5 10 20 50 70]", "7..7": "[7]", "0..2": "[0 1 2]", "1,30,4": "[1 30 4]", "4000000000000000000..9223372036854775807": "[4000000000000000000 5000000000000000000 9223372036854775807]"} {
		if values, err := valuesOf("burst", text); err != nil || fmt.Sprint(values) != want {
			t.Errorf("%s: %v, %v", text, values, err)
		}
	}
	if values, err := valuesOf("rate", "5/100ms..30/100ms"); err != nil || fmt.Sprint(values) != "[5/100ms 10/100ms 20/100ms 30/100ms]" {
		t.Errorf("%v, %v", values, err)
	}
}
