package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestHostileNamedText: arguments of the script that make no sense are an error, and change
// nothing.
func TestHostileNamedText(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	const api, state = "weir:limit:{api}", "weir:limit:{api}:state"
	both := []string{api, state}
	if err := script(t, client, both[:1], "init", "overall", "token_bucket", "rate=1/d", "burst=9").Error(); err != nil {
		t.Fatal(err)
	}
	if err := script(t, client, both, "take", "2").Error(); err != nil {
		t.Fatal(err)
	}
	for key, command := range map[string][]string{"string": {"SET", "string", "x"}, "list": {"RPUSH", "list", "x"}, "hash": {"HSET", "hash", "def", "x"}, "set": {"SADD", "set", "x"}} {
		if err := client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error(); err != nil {
			t.Fatal(key, err)
		}
	}
	everything := func() (all []string) {
		keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			text, err := client.Do(t.Context(), client.B().Dump().Key(k).Build()).ToString()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, k+text)
		}
		return all
	}
	before := len(everything())
	dump := strings.Join(everything(), "")
	long := strings.Repeat("x", 1<<16)
	def := "\x97\x01\x01\x00\x01\x01\x09\x00" // of a token bucket
	type call struct {
		keys []string
		args []string
	}
	calls := []call{
		{both, nil}, {both, []string{""}}, {both, []string{"pack"}}, {both, []string{"drop"}}, {both, []string{"\x00\xff"}}, {nil, []string{"take"}},
		{both[:1], []string{"take"}}, {[]string{api, "weir:limit:{api}:client:x"}, []string{"take"}}, {[]string{state, api}, []string{"take"}},
		{[]string{"weir:limit:{no}", "weir:limit:{no}:state"}, []string{"take"}}, {[]string{"weir:limit:{no}", "weir:limit:{no}:state"}, []string{"inspect"}},
		{both, []string{"define", "overall", "token_bucket", "9"}}, {both, []string{"define", "overall", "token_bucket", "-9", def}},
		{both, []string{"define", "overall", "a b", "9", def}}, {both, []string{"define", "overall", "x", "9", def, "scope=x"}},
		{both, append([]string{"define", "overall", "x", "9", def}, strings.Split(strings.Repeat("a=1 ", 2000)+"a=1", " ")...)},
		{[]string{"set", "set:state"}, []string{"delete"}}, {both[:1], []string{"delete"}},
		{[]string{"set"}, []string{"register", "x"}}, {[]string{"set"}, []string{"list"}}, {[]string{"new"}, []string{"register", ""}},
		{[]string{"new"}, []string{"register", "A"}}, {[]string{"new"}, []string{"register", long}}, {[]string{"new"}, []string{"list", "", "0"}},
		{[]string{"new"}, []string{"list", "+", "10"}}, {[]string{"new"}, []string{"list", "", "1001"}},
	}
	for _, key := range []string{"string", "list", "hash", "set"} {
		keys := []string{key, key + ":state"}
		calls = append(calls, call{keys, []string{"take"}}, call{keys, []string{"inspect"}}, call{keys, []string{"init", "overall", "token_bucket", "rate=1/s", "burst=1"}}, call{keys, []string{"delete"}})
	}
	for _, cost := range []string{"-1", "nan", "inf", "1e3", "0x10", "1.5", " 1", "1 ", "", "99999999999999999999", "９", long, "\x00", "1\r\n"} {
		calls = append(calls, call{both, []string{"take", cost}}, call{both, []string{"peek", cost}}, call{both, []string{"take", "1", cost}})
		for _, init := range []string{"token_bucket rate=1/s burst=", "token_bucket burst=1 rate=", "token_bucket burst=1 rate=1/", "leaky_bucket rate=1/s queue=", "fixed_window limit=1 window=",
			"sliding_log window=1s limit=", "sliding_log limit=1 window=", "sliding_window limit=1 window=1s slots=", "interval_bucket burst=1 every=1s refill="} {
			if cost == "" && strings.HasSuffix(init, "1/") {
				continue
			}
			calls = append(calls, call{both, append([]string{"init", "overall"}, strings.Split(init+cost, " ")...)})
		}
	}
	for _, init := range []string{"", "overall", "overall x", "everyone token_bucket rate=1/s burst=1", "per_client token_bucket rate=1/s burst=1", "overall token_bucket", "overall token_bucket rate=1/s",
		"overall token_bucket rate=1/s burst=1 burst=2", "overall token_bucket rate=1/s burst=1 x=2", "overall token_bucket rate=0/s burst=1", "overall token_bucket rate=1/0s burst=1",
		"overall token_bucket rate=1/d burst=99999", "overall token_bucket rate=1/s burst=0", "overall token_bucket rate=1/s burst=1 initial=2", "overall token_bucket rate=1/37000d burst=1",
		"overall leaky_bucket rate=1/s queue=1 delay_after=2", "overall fixed_window limit=1 window=1m align=day/Europe/Berlin", "overall sliding_window limit=1 window=1s slots=7",
		"overall token_bucket =1", "overall token_bucket rate", "overall all part_1=x"} {
		calls = append(calls, call{both, append([]string{"init"}, strings.Fields(init)...)})
	}
	for _, def := range []string{"", "\xc1", "\x01", "\x90", "\x97\x01\x01\x00\x00\x01\x09\x00", "\x97\x01\x01\x00\x01\x01\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\x00", "\x97\x01\x01\x00\x01\x01\xff\x00",
		"\x97\x02\x01\x00\x01\x01\x09\x00", "\x97\x01\x63\x00\x01\x01\x09\x00", "\x97\x01\x01\x00\x01\x01\xa1x\x00", "\x93\x01\x08\x09", "\x93\x01\x08\xa3\x93\x01\x08", "\x93\x01\x02\x00", long} {
		calls = append(calls, call{both, []string{"define", "overall", "x", "9", def}})
	}
	for _, c := range calls {
		if err := script(t, client, c.keys, c.args...).Error(); err == nil || strings.Contains(err.Error(), "WEIRSCRIPT") {
			t.Errorf("%.200q %.200q: %v", c.keys, c.args, err)
		}
	}
	if now := everything(); len(now) != before || strings.Join(now, "") != dump {
		t.Errorf("something was changed: %d keys, and there were %d", len(now), before)
	}
}

// TestHostileNamed: the same for the Go side.
func TestHostileNamed(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	n := named(t, weirrueidis.Evaler(client), weirredis.Options{Timeout: patience})
	ctx := t.Context()
	bucket := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 3}
	for _, name := range []string{"", "A", "a b", "{a}", "a}", "\x00", "é", strings.Repeat("x", 129), strings.Repeat("x", 1<<16), "a\n", ".."} {
		if _, err := n.Init(ctx, name, bucket, weirredis.Overall); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%.20q: %v", name, err)
		}
		if _, err := n.Take(ctx, name, "", 1); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%.20q: %v", name, err)
		}
		if err := n.Delete(ctx, name); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	for _, scope := range []weirredis.Scope{"", "everyone"} {
		if _, err := n.Init(ctx, "x", bucket, scope); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%q: %v", scope, err)
		}
	}
	for _, l := range []weir.Limit{weir.TokenBucket{}, weir.Concurrency{Limit: 1}, weir.FixedWindow{Limit: 1, Align: "day/Europe/Berlin"}} {
		if _, err := n.Init(ctx, "x", l, weirredis.Overall); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%T: %v", l, err)
		}
	}
	if _, err := n.Init(ctx, "mail", bucket, weirredis.PerClient); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"{}", "a b\r\n", "\x00\xff", strings.Repeat("x", 512), ":state", "1"} {
		takes(t, n, "mail", who, 1, 2, true, 0)
		takes(t, n, "mail", who, 1<<62, 2, false, weir.Never)
	}
	if _, err := n.Take(ctx, "mail", strings.Repeat("x", 513), 1); !errors.Is(err, weirredis.ErrCharge) {
		t.Error(err)
	}
	for _, count := range []int{0, -1, 1001} {
		if _, err := n.List(ctx, "", count); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%d: %v", count, err)
		}
	}
	for key, command := range map[string][]string{
		"weir:limit:{mail}:client:set": {"SADD", "weir:limit:{mail}:client:set", "x"},
		"weir:limit:{mail}:client:raw": {"SET", "weir:limit:{mail}:client:raw", "x"},
	} {
		if err := client.Do(ctx, client.B().Arbitrary(command...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Take(ctx, "mail", strings.TrimPrefix(key, "weir:limit:{mail}:client:"), 1); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := n.Inspect(ctx, "mail", strings.TrimPrefix(key, "weir:limit:{mail}:client:")); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
