package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// open is a store until the test ends.
func open(t *testing.T, client rueidis.Client, o weirredis.Options) *weirredis.Store {
	t.Helper()
	o = patiently(o)
	if o.ClockKey != "" && o.Grace == 0 {
		o.Grace = time.Hour // keys expire in real time, in which a busy machine may stand still while the virtual clock does
	}
	s, err := weirrueidis.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// patiently gives calls without a deadline as long as tests wait for anything: Redis, or the test, may
// stand still for longer than the default of a second.
func patiently(o weirredis.Options) weirredis.Options {
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	return o
}

// redis sends a command, and returns its reply in whatever type it has.
func redis(t *testing.T, client rueidis.Client, args ...string) any {
	t.Helper()
	v, err := client.Do(t.Context(), client.B().Arbitrary(args...).Build()).ToAny()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%.60q: %v", args, err)
	}
	return v
}

// hostileKeys are keys of a client that tries to break something.
var hostileKeys = map[string]string{
	"empty":     "",
	"NUL":       "\x00",
	"binary":    "\x00\x01\xfe\xff\x80",
	"newlines":  "a\r\n$5\r\nhello\r\n",
	"braces":    "{a}{b}}{",
	"escapes":   "%7B%00~%",
	"no UTF-8":  "\xc3\x28\xed\xa0\x80",
	"64 KiB":    strings.Repeat("k", 64<<10),
	"64 KiB+1":  strings.Repeat("k", 64<<10+1),
	"64 KiB, 0": strings.Repeat("\x00", 64<<10),
	"colons":    "nonce:0000:::",
	"quotes":    "'\"\\'); redis.call('FLUSHALL') --",
}

// TestHostileKeys: any bytes are a key, and each has a state of its own.
func TestHostileKeys(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	for name, o := range map[string]weirredis.Options{
		"own tag": {}, "one tag": {Prefix: "one:", Tag: func(string, string) string { return "t" }},
		"cluster": {Prefix: "cluster:", Cluster: true},
	} {
		s, err := weir.NewShared(slow(5), open(t, client, o), weir.Named("api"))
		if err != nil {
			t.Fatal(err)
		}
		left := int64(4)
		for range 2 {
			for what, key := range hostileKeys {
				if d, err := s.Take(t.Context(), key, 1); err != nil || !d.Allowed || d.Remaining != left {
					t.Errorf("%s, %s: %+v, %v; %d should be left", name, what, d, err, left)
				}
			}
			left--
		}
	}
}

// TestNamesDoNotReachIntoKeys: if the tag does not depend on the key, a name with a colon and a key
// with one still make different keys.
func TestNamesDoNotReachIntoKeys(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{Tag: func(string, string) string { return "t" }})
	batch := []weir.Charge{{Name: "api", Key: "v2:bob", Limit: slow(5), Cost: 3}, {Name: "api:v2", Key: "bob", Limit: slow(5), Cost: 3}}
	out := make([]weir.Decision, 2)
	if err := store.Do(t.Context(), batch, out); err != nil || !out[0].Allowed || !out[1].Allowed {
		t.Errorf("%+v, %v", out, err)
	}
}

// slow is a limit that does not refill while a test runs.
func slow(burst int64) weir.TokenBucket { return weir.TokenBucket{Rate: weir.PerDay(1), Burst: burst} }

// The MessagePack of hostile values.
func packed(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b.WriteString("\xd3" + string(binary.BigEndian.AppendUint64(nil, uint64(p))))
		case float64:
			b.WriteString("\xcb" + string(binary.BigEndian.AppendUint64(nil, math.Float64bits(p))))
		case string:
			b.WriteString("\xda" + string(binary.BigEndian.AppendUint16(nil, uint16(len(p)))) + p)
		case []any:
			b.WriteByte(0x90 | byte(len(p)))
			b.WriteString(packed(p...))
		case bool:
			b.WriteString(map[bool]string{true: "\xc3", false: "\xc2"}[p])
		case nil:
			b.WriteByte(0xc0)
		default:
			panic(fmt.Sprintf("%T", p))
		}
	}
	return b.String()
}

// state returns what a script would read as a state: a limit, and its numbers.
func state(def []any, numbers ...any) string { return packed(packed(def), numbers) }

// values are strings that are no state of the limit, but that a key may contain. Some of them begin
// like a good state.
func values(good string) map[string]string {
	bucket := func(n, p, size, extra any) []any { return []any{1, 1, 0, n, p, size, extra} }
	later := int(time.Now().Add(time.Hour).UnixMicro())
	v := map[string]string{
		"empty":                     "",
		"text":                      "no state",
		"a number":                  "12",
		"NULs":                      strings.Repeat("\x00", 64),
		"no MessagePack":            "\xc1\xc1\xc1",
		"MessagePack of no state":   packed(1, 2),
		"an array":                  packed([]any{"a", 1}),
		"nil":                       packed(nil, nil),
		"booleans":                  packed(true, false),
		"arrays, deep":              strings.Repeat("\x91", 64<<10),
		"an array that never comes": "\xdd\xff\xff\xff\xff",
		"a string that is longer":   "\xdb\xff\xff\xff\xffabc",
		"more than a state":         strings.Repeat("x", 1<<20),
		"def is no MessagePack":     packed("\xc1", []any{later, 0}),
		"def is empty":              packed("", []any{later, 0}),
		"def is a number":           packed(packed(7), []any{later, 0}),
		"another version":           state([]any{2, 1, 0, 1, 1, 5, 0}, later, 0),
		"no version":                state([]any{nil, 1, 0, 1, 1, 5, 0}, later, 0),
		"another kind":              state([]any{1, 77, 0, 1, 1, 5, 0}, later, 0),
		"no kind":                   state([]any{1}, later, 0),
		"kind is text":              state([]any{1, "x"}, later, 0),
		"an All of itself":          state([]any{1, 8, packed([]any{1, 8})}, []any{later, 0}),
		"rate of 0":                 state(bucket(0, 1<<52, 1<<52, 0), later, 0),
		"rate below 0":              state(bucket(-5, 1<<50, 1<<50, 0), later, 0),
		"rate is endless":           state(bucket(math.Inf(1), 1, 5, 0), later, 0),
		"rate is NaN":               state(bucket(math.NaN(), 1, 5, 0), later, 0),
		"cost is endless":           state(bucket(1, math.Inf(1), 5, 0), later, 0),
		"size is endless":           state(bucket(1, 1, math.Inf(1), 0), later, 0),
		"size is text":              state(bucket(1, 1, "5", 0), later, 0),
		"size is not there":         state([]any{1, 1, 0, 1, 1}, later, 0),
	}
	for i := range len(good) - 1 { // without the last byte, it is a state of an earlier format
		v[fmt.Sprintf("truncated to %d", i)] = good[:i]
	}
	def, _, _ := strings.Cut(good, "\x92") // the limit that is used; 0x92 begins the state, two numbers
	for name, numbers := range map[string][]any{
		"no numbers":      {},
		"one number":      {later},
		"three numbers":   {later, 0, 5},
		"texts":           {"a", "b"},
		"number as text":  {fmt.Sprint(later), "0"},
		"below 0":         {-later, 0},
		"rest below 0":    {later, -1},
		"rest too large":  {later, 1 << 52},
		"huge":            {1e300, 0},
		"huge, whole":     {math.MaxInt64, 0},
		"rest huge":       {later, 1e300},
		"endless":         {math.Inf(1), 0},
		"endless, before": {math.Inf(-1), 0},
		"NaN":             {math.NaN(), 0},
		"rest NaN":        {later, math.NaN()},
		"fractions":       {float64(later) + 0.5, 0.25},
		"array inside":    {[]any{1}, 0},
		"nils":            {nil, nil},
		"huge returned":   {later, 0, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		v["state: "+name] = def + packed(numbers)
	}
	return v
}

// TestHostileValues: if a key contains something else, its charge gets an error, the charges beside
// it are made, and the value stays.
func TestHostileValues(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{})
	limit := slow(5)
	do(t, store, weir.Charge{Name: "api", Key: "good", Limit: limit, Cost: 1})
	good := redis(t, client, "GET", "weir:{good}:api").(string)

	n := 0
	for name, value := range values(good) {
		for what, c := range hostileCharges(limit) {
			n++
			c.Key = fmt.Sprint("bad", n)
			redis(t, client, "SET", at(c.Key), value)
			hostile(t, store, name+", "+what, n, c)
			if now := redis(t, client, "GET", at(c.Key)); now != value {
				t.Errorf("%s, %s: it held %.40q, and now %.40q", name, what, value, now)
			}
		}
	}
	t.Logf("%d charges of hostile values", n)
}

// hostileCharges are the ways to use a key, both with the short script and with the others.
func hostileCharges(l weir.Limit) map[string]weir.Charge {
	return map[string]weir.Charge{
		"take":      {Name: "api", Limit: l, Cost: 1},
		"peek":      {Name: "api", Limit: l, Cost: 1, Op: weir.OpPeek},
		"keep":      {Name: "api", Limit: l, Cost: 1, Keep: true},
		"reserve":   {Name: "api", Limit: l, Cost: 1, Op: weir.OpReserve, Within: -1},
		"take some": {Name: "api", Limit: l, Cost: 9, Op: weir.OpTakeSome},
		"carry":     {Name: "api", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 7}, Op: weir.OpCarry},
		"another":   {Name: "api", Limit: weir.SmoothBursty{Rate: weir.PerHour(1)}, Cost: 1},
		"settle":    {Name: "api", Limit: l, Cost: 0, Op: weir.OpSettle},
	}
}

// hostile uses a hostile key between two others, and in a round trip with those of another caller.
func hostile(t *testing.T, store *weirredis.Store, name string, n int, c weir.Charge) {
	t.Helper()
	hostileBeside(t, store, name, n, c, slow(5))
}

// hostileBeside does so where the others have a limit of which they leave 4.
func hostileBeside(t *testing.T, store *weirredis.Store, name string, n int, c weir.Charge, others weir.Limit) {
	t.Helper()
	if c.Op == weir.OpSettle {
		other := do(t, store, weir.Charge{Name: "api", Key: fmt.Sprint("other", n), Limit: c.Limit, Cost: 2, Keep: true})
		c.Receipt = other.Receipt
	}
	beside := func(key string) weir.Charge {
		return weir.Charge{Name: "api", Key: fmt.Sprint(key, n), Limit: others, Cost: 1}
	}
	batch := []weir.Charge{beside("before"), c, beside("after")}
	out := make([]weir.Decision, len(batch))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := store.Do(ctx, batch, out)
	if !errors.Is(err, weirredis.ErrCharge) || !errors.Is(batch[1].Err, weirredis.ErrCharge) || out[1].Allowed {
		t.Errorf("%s: %v, and of the charge %v, %+v", name, err, batch[1].Err, out[1])
	}
	for _, i := range []int{0, 2} {
		if batch[i].Err != nil || !out[i].Allowed || out[i].Remaining != 4 {
			t.Errorf("%s: beside it %+v, %v", name, out[i], batch[i].Err)
		}
	}
}

// TestHostileFixedWindows: the same for a key of a fixed window, between keys of others, which has a short
// script of its own.
func TestHostileFixedWindows(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{})
	now, n := int(time.Now().UnixMicro()), 0
	for align, limit := range map[string]weir.Limit{"epoch": weir.FixedWindow{Limit: 5, Window: 400 * day}, "first": weir.FixedWindow{Limit: 5, Window: 400 * day, Align: "first"}} {
		good := "good, " + align
		do(t, store, weir.Charge{Name: "api", Key: good, Limit: limit, Cost: 1})
		value := redis(t, client, "GET", at(good)).(string)
		def, _, _ := strings.Cut(value, "\x93") // 0x93 begins the state, three numbers
		bad := map[string]string{
			"no state": def, "text": "no state", "no numbers": def + packed([]any{}), "another version": "x" + value,
			"clock is text":         def + packed([]any{now, 1, -1}, false, "x"),
			"clock is NaN":          def + packed([]any{now + int(day/time.Microsecond), 1, -1}, false, math.NaN()),
			"clock is below 0":      def + packed([]any{now + int(day/time.Microsecond), 1, -1}, false, -1),
			"second clock is text":  def + packed([]any{now, 1, -1}, false, 5, "x"),
			"latest charge is text": def + packed([]any{now, 1, -1}, "x"),
		}
		for what, numbers := range map[string][]any{
			"two numbers": {now, 1}, "four numbers": {now, 1, -1, 0}, "texts": {"a", "b", "c"}, "count is text": {now, "1", -1}, "count below 0": {now, -1, -1},
			"count is huge": {now, 1e300, -1}, "count is NaN": {now, math.NaN(), -1}, "count is a fraction": {now, 0.5, -1}, "begins at NaN": {math.NaN(), 1, -1}, "begins never": {math.Inf(1), 1, -1},
			"begins before all": {math.Inf(-1), 1, -1}, "begins in between": {float64(now) + 0.5, 1, -1}, "due below -1": {now, 1, -2}, "due never": {now, 1, math.MaxInt64}, "due is text": {now, 1, "x"},
			"array inside": {now, []any{1}, -1}, "nils": {nil, nil, nil},
		} {
			bad[what] = def + packed(numbers, false)
		}
		for i := range len(value) - 1 { // without the last byte, it is a state of an earlier format
			bad[fmt.Sprintf("truncated to %d", i)] = value[:i]
		}
		for name, value := range bad {
			for what, c := range hostileCharges(limit) {
				n++
				c.Key = fmt.Sprint("bad, "+align, n)
				redis(t, client, "SET", at(c.Key), value)
				hostileBeside(t, store, align+", "+name+", "+what, n, c, limit)
				if now := redis(t, client, "GET", at(c.Key)); now != value {
					t.Errorf("%s, %s, %s: it held %.40q, and now %.40q", align, name, what, value, now)
				}
			}
		}
	}
}

// TestHostileTypes: the same for a key of another type.
func TestHostileTypes(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{})
	n := 0
	for name, make := range map[string][]string{
		"list": {"RPUSH", "", "a"}, "hash": {"HSET", "", "a", "b"}, "set": {"SADD", "", "a"}, "sorted set": {"ZADD", "", "1", "a"},
		"stream": {"XADD", "", "*", "a", "b"}, "hyperloglog": {"PFADD", "", "a"},
	} {
		for what, c := range hostileCharges(slow(5)) {
			n++
			c.Key = fmt.Sprint("bad", n)
			make[1] = at(c.Key)
			redis(t, client, make...)
			before := redis(t, client, "DUMP", at(c.Key))
			hostile(t, store, name+", "+what, n, c)
			if redis(t, client, "DUMP", at(c.Key)) != before {
				t.Errorf("%s, %s: it is another one now", name, what)
			}
		}
	}
}

// TestHostileInAGroup: a group with a hostile key is refused as a whole.
func TestHostileInAGroup(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	for name, o := range map[string]weirredis.Options{"one step": {}, "in turn": {Cluster: true}} {
		store := open(t, client, o)
		redis(t, client, "DEL", at("list"), at("a"), at("b"))
		redis(t, client, "RPUSH", at("list"), "x")
		for _, keys := range [][]string{{"list", "a", "b"}, {"a", "list", "b"}, {"a", "b", "list"}} {
			var batch []weir.Charge
			for _, key := range keys {
				batch = append(batch, weir.Charge{Name: "api", Key: key, Limit: slow(5), Cost: 1, Group: 1})
			}
			if err := store.Do(t.Context(), batch, make([]weir.Decision, 3)); !errors.Is(err, weirredis.ErrCharge) {
				t.Errorf("%s, %v: %v", name, keys, err)
			}
		}
		for _, key := range []string{"a", "b"} {
			if c := do(t, store, weir.Charge{Name: "api", Key: key, Limit: slow(5), Op: weir.OpPeek}); c.decision.Remaining != 5 {
				t.Errorf("%s: %s was charged: %+v", name, key, c.decision)
			}
		}
	}
}

// at returns the key of a limit named api.
func at(key string) string { return "weir:{" + key + "}:api" }

// done is a charge with its decision.
type done struct {
	weir.Charge
	decision weir.Decision
}

// do carries out one charge, which must succeed.
func do(t *testing.T, store weir.Store, c weir.Charge) done {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	if err := store.Do(ctx, batch, out); err != nil {
		t.Fatal(err)
	}
	return done{batch[0], out[0]}
}
