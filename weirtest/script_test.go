package weirtest_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// flashSale is the policy of a loader without files.
func flashSale(string) (policy.Policy, error) {
	return policy.Policy{
		Limits: []policy.Limit{
			{Name: "per-sku", Key: []string{"query.sku_id"}, Limit: weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 1}},
			{Name: "door", Key: []string{"client.ip", "header.user-id", "cookie.s", "host"}, Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 1}},
			{Name: "bytes", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100}, Cost: "bytes"},
			{Name: "said", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100}, Cost: "header.x-cost"},
		},
		Routes: []policy.Route{
			{Match: "GET /ratelimit/sku", Limits: []string{"per-sku"}, Refused: policy.Refused{Status: 503}},
			{Match: "/door", Limits: []string{"door"}},
			{Match: "/bytes", Limits: []string{"bytes"}, Refused: policy.Refused{Redirect: "/sorry"}},
			{Match: "/said", Limits: []string{"said"}},
		},
	}, nil
}

var runner = weirtest.Runner{Policy: flashSale}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.weir")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		mismatches, err := runner.Run(name, f)
		if err != nil {
			t.Error(err)
		}
		for _, m := range mismatches {
			t.Error(m)
		}
	}
}

func TestRequestsInScripts(t *testing.T) {
	mismatches, err := runner.Run("requests.weir", strings.NewReader(`
policy shop.yaml
at 0s  GET /ratelimit/sku?sku_id=7 from=10.0.0.1 -> 200 by=per-sku
at 1s  GET /ratelimit/sku?sku_id=7 from=10.0.0.2 -> 503 retry=9s by=per-sku limit=1
at 1s  GET /ratelimit/sku?sku_id=8               -> 200
at 10s GET /ratelimit/sku?sku_id=7               -> 200
at 10s POST /ratelimit/sku?sku_id=7              -> 404
at 10s GET /door from=2001:db8::1 header.user-id=a cookie.s=1 host=x.example:80 -> 200 delay=0s
at 10s GET /door from=2001:db8::2 header.user-id=a cookie.s=1 host=X.example    -> 200 delay=1s
at 10s GET /door from=2001:db8::3 header.user-id=a cookie.s=1 host=x.example    -> 429 retry=1s
at 10s GET /door from=2001:db8::1 header.user-id=b cookie.s=1 host=x.example    -> 200 delay=0s
at 10s PUT /bytes length=60 -> 200 remaining=40
at 10s PUT /bytes length=60 -> 302
at 10s GET /said header.x-cost=0 -> 400
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mismatches {
		t.Error(m)
	}
}

func TestMismatchesAreReported(t *testing.T) {
	mismatches, err := runner.Run("bad.weir", strings.NewReader(`
limit token_bucket rate=1/s burst=1
at 0s wait a 1 -> delay=1s
at 0s take a -> allow remaining=3 by=x
at 0s wait a 1 -> error canceled
at 9s take b -> deny
at 9s reserve b 1 -> delay=0s error limited
at 9s settle b 0 -> deny
at 9s peek c -> 200 reset=1h retry=never
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mismatches {
		got = append(got, fmt.Sprintf("%d want %s", m.Line, m.Want))
	}
	want := "3 want delay=1s, 4 want allow, 4 want remaining=3, 4 want by=x, 5 want error canceled, 6 want deny, 7 want delay=0s, " +
		"7 want error limited, 8 want deny, 9 want 200, 9 want reset=1h, 9 want retry=never"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if text := mismatches[1].String(); text != "bad.weir:4: at 0s take a -> allow remaining=3 by=x\n\twant allow\n\tgot  deny remaining=0 retry=1s reset=1s limit=1 by=token_bucket" {
		t.Error(text)
	}
}

func TestInvalidScripts(t *testing.T) {
	for line, want := range map[string]string{
		"take a 1":                                    `"take" begins no line`,
		"limit":                                       "write limit ALGORITHM",
		"limit token_bucket rate":                     `"rate" is not of the form name=value`,
		"limit token_bucket rate=1/s rate=2/s":        "rate is there twice",
		"limit tokenbucket rate=1/s":                  `did you mean "token_bucket"?`,
		"limit token_bucket rate=1/s brust=2":         `did you mean "burst"?`,
		"limit leaky_bucket rate=1/s burst=2":         `leaky_bucket has no "burst" (write queue=2)`,
		"limit leaky_bucket rate=1/s queue=1 delay=1": "write delay_after=1",
		"limit fixed_window window=1m burst=2":        "write limit=2",
		"limit smooth_bursty rate=10/s burst=5":       "write max_burst=500ms",
		"limit smooth_bursty rate=3/s burst=5":        "known: rate, max_burst",
		"limit sliding_log rate=6/m":                  "write limit=6 window=1m",
		"limit interval_bucket rate=6/m burst=3":      "write refill=6 every=1m",
		"limit warm_up rate=6/m period=1s burst=3":    "known: rate, period, cold_factor",
		"limit concurrency max=3":                     "write limit=3",
		"limit token_bucket rate=0/s burst=2":         "must be at least 1",
		"limit token_bucket rate=1/s burst=2 -> ok":   "expects nothing",
		"policy":                "write policy FILE",
		"policy a b":            "write policy FILE",
		"at":                    "write at TIME OPERATION",
		"at 0s":                 "write at TIME OPERATION",
		"at 0 take a":           "nothing is open", // 0 is a valid time
		"at soon take a":        `"soon" is not a time`,
		"at 0s take":            "write at TIME take KEY [N]",
		"at 0s take a 1 2":      "write at TIME take KEY [N]",
		"at 0s take a x":        "not a whole number",
		"at 0s take a max=1s":   "take has no max",
		"at 0s give a":          `no operation "give"`,
		"at 0s set":             "write at TIME set",
		"at 0s GET":             "GET /PATH",
		"at 0s GET x":           "GET /PATH",
		"at 0s GET / to=x":      `a request has no "to"`,
		"at 0s GET / header.=x": `a request has no "header."`,

		`at 0s GET / header.a="x y`:   `the quoted value of header.a ends nowhere`,
		`at 0s GET / header.a="x y"z`: `the quoted value of header.a ends nowhere, or before its last letter: write header.a="TEXT"`,
		"at 0s GET / -> 200":          "nothing is open",
		"at 0s take a ->":             "nothing after the arrow",
		"-> allow":                    "nothing before the arrow",
		"at 0s take a -> yes":         `nothing results in "yes"`,
		"at 0s take a -> colour=3":    `nothing is called "colour"`,
		"at 0s take a -> error":       "which error?",
	} {
		_, err := runner.Run("x.weir", strings.NewReader("\n"+line+"\n"))
		var wrong *weirtest.SyntaxError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), "x.weir:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", line, err, want)
		}
	}
	for script, want := range map[string]string{
		"limit token_bucket rate=1/s burst=1\nat 0s GET / -> 200":             "a request needs a policy",
		"policy x\nat 0s take a":                                              "take needs a limit",
		"policy x\nat 0s GET / length=x":                                      "not a whole number",
		"limit token_bucket rate=1/s burst=1\nat 0s set burst=0":              "lets nothing pass",
		"limit token_bucket rate=1/s burst=1\nat 0s reserve a 1 max=x":        "not a duration",
		"limit token_bucket rate=1/s burst=1\nat 0s wait a 1 deadline=x":      "not a time",
		"limit token_bucket rate=1/s burst=1\nat 0s wait a 1 cancel=x":        "not a time",
		"limit token_bucket rate=1/s burst=1\n" + strings.Repeat("x", 70_000): "longer than",
	} {
		_, err := runner.Run("x.weir", strings.NewReader(script))
		if err == nil || !strings.HasPrefix(err.Error(), "x.weir:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want one with %q", script, err, want)
		}
	}
	if _, err := (weirtest.Runner{}).Run("x", strings.NewReader("policy x")); err == nil {
		t.Error("a policy was loaded by nobody")
	}
}

func FuzzScript(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.weir")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("policy x\nat 0s GET /door?x=1 from=1.2.3.4 -> 200\nat 1s GET /said header.x-cost=9 -> 400")
	f.Add("limit leaky_bucket rate=1/s queue=2\nat 0s wait a 1 cancel=5s\nat -5s wait a 1\nat 0s set queue=0")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "wait") > 50 || len(text) > 4000 {
			return // slow, and not interesting
		}
		stuck := time.AfterFunc(10*time.Second, func() { panic("no end: " + text) })
		defer stuck.Stop()
		mismatches, err := runner.Run("fuzz.weir", strings.NewReader(text))
		if err != nil && len(mismatches) > strings.Count(text, "\n")*20 {
			t.Error(err)
		}
	})
}

// TestQuotedValues: a value in quotes may have spaces, # and ->. An expectation that is not met by an
// unknown customer names no fields of a decision.
func TestQuotedValues(t *testing.T) {
	s, err := weirtest.ParseScript("t.weir", strings.NewReader(`at 0s GET / header.authorization="Bearer x -> #y" header.b="" header.c=a"b -> 200 # z`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"header.authorization": "Bearer x -> #y", "header.b": "", "header.c": `a"b`}
	if got := s.Steps[0]; !maps.Equal(got.Fields, want) || len(got.Expect) != 1 {
		t.Errorf("%q %v", got.Fields, got.Expect)
	}
	r := weirtest.Runner{Policy: func(string) (policy.Policy, error) {
		pro := policy.PlanLimit{Plan: "pro", Unlimited: true}
		return policy.Policy{
			Plans:  policy.Plans{From: []string{"header.x-plan"}},
			Limits: []policy.Limit{{Name: "l", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, Plans: []policy.PlanLimit{pro}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
		}, nil
	}}
	wrong, err := r.Run("t.weir", strings.NewReader("policy p\nat 0s GET / -> 200\nat 0s GET / -> 401"))
	if err != nil || len(wrong) != 1 || wrong[0].Got != "401 (no valid credentials)" {
		t.Errorf("%+v, %v", wrong, err)
	}
}

// TestAdaptiveScript: a request that takes time has a place at the adaptive limits of its route and its upstream
// until then. What a request that ends at once would tell them is nothing.
func TestAdaptiveScript(t *testing.T) {
	r := weirtest.Runner{Policy: func(string) (policy.Policy, error) {
		most := func(n int64) policy.Adaptive {
			return policy.Adaptive{On: true, Algorithm: adaptive.Knee{Initial: n, Max: n}, Queue: adaptive.Queue{Length: 9}}
		}
		return policy.Policy{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Priorities:     policy.Priorities{Header: "X-Priority"},
			Limits:         []policy.Limit{{Name: "three", Limit: weir.FixedWindow{Limit: 3, Window: time.Hour}}},
			Upstreams:      []policy.Upstream{{Name: "app", Adaptive: most(4), URL: "http://10.0.0.1"}},
			Routes: []policy.Route{
				{Match: "/route/", Upstream: "app", Adaptive: most(1), Limits: []string{"three"}, Refused: policy.Refused{Redirect: "/sorry"}},
				{Match: "/", Upstream: "app"},
			},
		}, nil
	}}
	wrong, err := r.Run("t.weir", strings.NewReader(`
policy p
at 0s  GET / -> 200
at 0s  GET / status=404 -> 404
at 0s  GET /route/a takes=20s -> 200 by=three
at 1s  GET /route/b takes=20s -> 503 by=adaptive:/route/ retry=1s
at 2s  GET /a takes=10s status=503 -> 503
at 2s  GET /b takes=10s -> 200
at 2s  GET /c takes=10s -> 200
at 2s  GET /d takes=10s header.x-priority=sheddable -> 503 by=adaptive:app
at 2s  GET /d takes=10s -> 503 by=adaptive:app
at 12s GET /e takes=10s -> 200
at 12s GET /f takes=2s -> 200
at 12s GET /g takes=1s header.x-priority=sheddable -> 503
at 12s GET /g takes=1s header.x-priority=critical -> 200
at 21s GET /route/c takes=1s -> 200 remaining=1
`))
	for _, m := range wrong {
		t.Error(m)
	}
	if err != nil {
		t.Error(err)
	}
	for line, want := range map[string]string{"takes=0s": "takes", "takes=1": "takes", "status=99": "200 to 599", "status=x": "200 to 599"} {
		if _, err := r.Run("t.weir", strings.NewReader("policy p\nat 0s GET / "+line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
