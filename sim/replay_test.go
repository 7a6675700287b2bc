package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

func perClient(l weir.Limit) policy.Policy {
	return policy.Policy{
		Limits: []policy.Limit{{Name: "per-client", Key: []string{"client.ip"}, Limit: l}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"per-client"}}},
	}
}

var tenAMinute = weir.TokenBucket{Rate: weir.PerMinute(10), Burst: 5}

func logLine(client string, second int, target string) string {
	at := time.Date(2024, 1, 1, 0, 0, second, 0, time.UTC).Format(clockText)
	return fmt.Sprintf("%s - - [%s] \"GET %s HTTP/1.1\" 200 5\n", client, at, target)
}

func run1(t *testing.T, o Options, logs ...string) (*Report, string) {
	t.Helper()
	var decisions bytes.Buffer
	o.Decisions = &decisions
	for i, text := range logs {
		o.Inputs = append(o.Inputs, Input{fmt.Sprint(i), strings.NewReader(text)})
	}
	r, err := Replay(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r, decisions.String()
}

func TestReplay(t *testing.T) {
	log := ""
	for range 7 {
		log += logLine("a", 0, "/x")
	}
	log += "rubbish\n" + logLine("b", 3, "/x") + logLine("a", 6, "/x") + logLine("a", 6, "/x")
	r, decisions := run1(t, Options{Policy: perClient(tenAMinute)}, log)
	if r.Requests != 10 || r.Unparsed != 1 || r.Allowed != 7 || r.Limited != 3 || r.Delayed != 0 {
		t.Errorf("%+v", r)
	}
	want := []string{"allow\t-", "allow\t-", "allow\t-", "allow\t-", "allow\t-", "deny\tper-client", "deny\tper-client", "", "allow\t-", "allow\t-", "deny\tper-client"}
	for i, line := range want {
		if line != "" && !strings.Contains(decisions, fmt.Sprintf("%d\t%s\n", i+1, line)) {
			t.Errorf("line %d is not %q in\n%s", i+1, line, decisions)
		}
	}
	if strings.Count(decisions, "\n") != 10 {
		t.Errorf("%s", decisions)
	}
	text, err := json.Marshal(r)
	if err != nil || !json.Valid(text) || !strings.HasPrefix(string(text), `{"requests":10,"unparsed":1,"limits":{"per-client":{"allowed":7,"limited":3,"delayed":0}},"first":"2024-01-01T00:00:00Z"`) {
		t.Errorf("%s, %v", text, err)
	}
	if len(r.Samples) != 1 || r.Samples[0].Line != 8 || r.Samples[0].Text != "rubbish" {
		t.Errorf("%+v", r.Samples)
	}
	if want := []LimitedKey{{"per-client", "a", 3}}; !slices.Equal(r.Most, want) || r.MostError != 0 {
		t.Errorf("%+v", r.Most)
	}
	var out strings.Builder
	if err := r.WriteText(&out); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"requests  10   2024-01-01T00:00:00Z to 2024-01-01T00:00:06Z (6s)", "limited   3   30.00 %", "per-client         7         3         0                 1", "  3   per-client   a"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestOutOfOrder: lines are decided in the order of time, and reported in the order of the input,
// both in memory and with temporary files.
func TestOutOfOrder(t *testing.T) {
	log := logLine("a", 60, "/late") + logLine("a", 0, "/1") + logLine("a", 0, "/2") + logLine("a", 30, "/mid")
	limit := perClient(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1})
	want := "1\tallow\t-\n2\tallow\t-\n3\tdeny\tper-client\n4\tdeny\tper-client\n"
	for _, memory := range []int{0, 1} {
		if _, got := run1(t, Options{Policy: limit, Memory: memory, TempDir: t.TempDir()}, log); got != want {
			t.Errorf("memory %d: got\n%swant\n%s", memory, got, want)
		}
		// The same from two files, with line numbers through both.
		half := strings.Index(log, "\n") + 1
		if _, got := run1(t, Options{Policy: limit, Memory: memory, TempDir: t.TempDir()}, log[:half], log[half:]); got != want {
			t.Errorf("memory %d, two files: got\n%swant\n%s", memory, got, want)
		}
	}
}

func TestQueuesDelay(t *testing.T) {
	p := perClient(weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 1})
	r, decisions := run1(t, Options{Policy: p}, logLine("a", 0, "/")+logLine("a", 0, "/")+logLine("a", 0, "/")+logLine("a", 1, "/")+logLine("a", 9, "/"))
	if want := "1\tallow\t-\n2\tdelay\tper-client\n3\tdeny\tper-client\n4\tdelay\tper-client\n5\tallow\t-\n"; decisions != want {
		t.Errorf("got\n%s", decisions)
	}
	if r.Limits[0] != (LimitCount{Limit: "per-client", Allowed: 2, Limited: 1, Delayed: 2, ClientsLimited: 1}) {
		t.Errorf("%+v", r.Limits)
	}
}

// TestFullAddressInLogs: client.ip/128 tells the IPv6 clients of one /64 apart.
func TestFullAddressInLogs(t *testing.T) {
	p := perClient(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1})
	p.Limits[0].Key = []string{"client.ip/128"}
	_, decisions := run1(t, Options{Policy: p}, logLine("2001:db8::1", 0, "/"), logLine("2001:db8::2", 1, "/"), logLine("2001:DB8::0:2", 2, "/"), logLine("192.0.2.1", 3, "/"), logLine("name", 4, "/"), logLine("name", 5, "/"))
	if want := "1\tallow\t-\n2\tallow\t-\n3\tdeny\tper-client\n4\tallow\t-\n5\tallow\t-\n6\tdeny\tper-client\n"; decisions != want {
		t.Errorf("got\n%s", decisions)
	}
}

func TestRoutesKeysAndShadows(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{
			{Name: "agent", Key: []string{"header.user-agent"}, Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}},
			{Name: "dry", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}, Shadow: true},
			{Name: "cost", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 9}, Cost: "header.x-cost"},
		},
		Routes: []policy.Route{{Match: "GET /shop/", Limits: []string{"agent", "dry"}}, {Match: "/paid", Limits: []string{"cost"}}},
	}
	line := func(client, target, agent string) string {
		return strings.TrimSuffix(logLine(client, 0, target), "\n") + ` "-" "` + agent + "\"\n"
	}
	r, decisions := run1(t, Options{Policy: p},
		line("2001:db8::1", "/shop/1", "x"), line("2001:db8::2", "/shop/2", "y"), line("2001:db8::3", "/shop/3", "y"), line("c", "/else", "x"),
		`{"time":"2024-01-01T00:00:00Z","client":"c","method":"GET","path":"/paid","headers":{"x-cost":"0"}}`)
	if want := "1\tallow\t-\n2\tallow\t-\n3\tdeny\tagent\n4\tallow\t-\n5\tdeny\tcost\n"; decisions != want {
		t.Errorf("got\n%s", decisions)
	}
	text, _ := json.Marshal(r)
	want := `{"requests":5,"unparsed":0,"limits":{"agent":{"allowed":2,"limited":1,"delayed":0},` +
		`"dry":{"allowed":1,"limited":1,"delayed":0,"shadow":true},"cost":{"allowed":0,"limited":0,"delayed":0}},"first":`
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if r.NoRoute != 1 || r.Invalid != 1 {
		t.Errorf("%+v", r)
	}
}

func TestGzipLongLinesAndBrokenInputs(t *testing.T) {
	log := logLine("a", 0, "/") + strings.Repeat("x", 100_000) + "\n" + logLine("b", 0, "/"+strings.Repeat("y", 70_000)) + "\n" + logLine("c", 0, "/")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, log)
	z.Close()
	for name, in := range map[string]io.Reader{
		"plain": strings.NewReader(log), "one byte at a time": iotest.OneByteReader(strings.NewReader(log)),
		"without the last newline": strings.NewReader(strings.TrimSuffix(log, "\n")), "gzip": bytes.NewReader(zipped.Bytes()),
		"with carriage returns": strings.NewReader(strings.ReplaceAll(log, "\n", "\r\n")),
	} {
		r, err := Replay(t.Context(), Options{Policy: perClient(tenAMinute), Inputs: []Input{{name, in}}, MaxLine: 80_000})
		if err != nil || r.Requests != 3 || r.Unparsed != 2 || !strings.Contains(r.Samples[0].Why, "longer than 80000") || len(r.Samples[0].Text) > 100 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	cut := zipped.Bytes()[:zipped.Len()-10]
	r, err := Replay(t.Context(), Options{Policy: perClient(tenAMinute), Inputs: []Input{{"cut.gz", bytes.NewReader(cut)}}})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "cut.gz") || r == nil || r.Requests == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Replay(t.Context(), Options{Policy: policy.Policy{Routes: []policy.Route{{Match: "x"}}}}); err == nil {
		t.Error("a policy that is not valid was replayed")
	}
	r, err = Replay(t.Context(), Options{Policy: perClient(tenAMinute)})
	if err != nil || r.Requests != 0 || r.WriteText(io.Discard) != nil {
		t.Errorf("nothing at all: %+v, %v", r, err)
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls int
	_, err := Replay(ctx, Options{
		Policy: perClient(tenAMinute), Inputs: []Input{{"x", strings.NewReader(strings.Repeat(logLine("a", 0, "/"), 20_000))}},
		Progress: func(read, decided int64) {
			if calls++; calls == 2 {
				cancel()
			}
		},
	})
	if err != context.Canceled {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestTopKeys: the sketch's counts are never too low, and too high by at most its error.
func TestTopKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	top := newTopKeys(50)
	exact := map[string]int64{}
	for range 20_000 {
		key := policy.EncodeKey(fmt.Sprint(int(r.ExpFloat64() * 30)))
		exact[key]++
		top.add("l", key)
	}
	most, over := top.most(5)
	for _, m := range most {
		n := exact[policy.EncodeKey(m.Key)]
		if m.Count < n || m.Count > n+over {
			t.Errorf("%s: %d, really %d, said to be at most %d too high", m.Key, m.Count, n, over)
		}
	}
	if len(most) != 5 || most[0].Key != "0" {
		t.Errorf("%+v", most)
	}
	for key, want := range map[string]string{
		policy.EncodeKey(): "(all)", policy.EncodeKey("a", "b"): "a,b", policy.EncodeKey(""): `""`, policy.EncodeKey("a,b", "\x00"): `"a,b","\x00"`,
		policy.EncodeKey(strings.Repeat("x", 300)): "(a long key)",
	} {
		if got := keyParts(key); got != want {
			t.Errorf("%q reads %s, want %s", key, got, want)
		}
	}
}
