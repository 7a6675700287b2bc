package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// perHour is a limit per key with a burst of n, and no refill that a test would notice.
func perHour(t testing.TB, n int64) *keyed.Limiter[string] {
	t.Helper()
	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: n}, keyed.Options{Name: "per-hour", MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })

// from is a request from an address.
func from(address string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = address
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// status serves a request.
func status(h http.Handler, r *http.Request) int {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code
}

// TestKeys: requests with equal keys share a limit of one, and all others have one of their own.
func TestKeys(t *testing.T) {
	verify := func(_ context.Context, token string) (map[string]any, error) {
		if sub, ok := strings.CutPrefix(token, "good-"); ok {
			return map[string]any{"sub": sub, "id": 7.0, "list": []any{1}}, nil
		}
		return nil, errors.New("the signature does not match")
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	const peer = "192.0.2.1:1000"
	for name, c := range map[string]struct {
		key    weirhttp.KeyFunc
		first  *http.Request
		same   []*http.Request
		others []*http.Request
	}{
		"the port is no part of an address": {weirhttp.ByIP(), from(peer), []*http.Request{from("192.0.2.1:2"), from("192.0.2.1"), from("[::ffff:192.0.2.1]:5")}, []*http.Request{from("192.0.2.2:1000"), from("192.0.2.11:1000")}},
		"an IPv6 client has a /64": {weirhttp.ByIP(), from("[2001:db8:1:2::1]:1"),
			[]*http.Request{from("[2001:db8:1:2:ffff:ffff:ffff:ffff]:1"), from("2001:db8:1:2::9")}, []*http.Request{from("[2001:db8:1:3::1]:1"), from("[2001:db8::1]:1")}},
		"X-Forwarded-For of a client is ignored": {weirhttp.ByIP(trusted...), from(peer, "X-Forwarded-For", "1.1.1.1"),
			[]*http.Request{from(peer, "X-Forwarded-For", "2.2.2.2"), from(peer), from(peer, "X-Real-Ip", "3.3.3.3", "Forwarded", "for=4.4.4.4", "True-Client-Ip", "5.5.5.5")}, nil},
		"without trusted proxies, that of nobody counts": {weirhttp.ByIP(), from("10.0.0.1:1", "X-Forwarded-For", "1.1.1.1"), []*http.Request{from("10.0.0.1:1", "X-Forwarded-For", "2.2.2.2")}, nil},
		"behind a trusted proxy, the last address counts": {weirhttp.ByIP(trusted...), from("10.0.0.1:1", "X-Forwarded-For", "6.6.6.6, 1.1.1.1"),
			[]*http.Request{from("10.0.0.2:1", "X-Forwarded-For", "7.7.7.7, 1.1.1.1, 10.0.0.1"), from("1.1.1.1:5"), from("[fd00::1]:2", "X-Forwarded-For", "1.1.1.1:99")},
			[]*http.Request{from("10.0.0.1:1", "X-Forwarded-For", "1.1.1.1, 6.6.6.6")}},
		"behind a proxy with another field": {weirhttp.ByIPFrom("X-Real-IP", trusted...), from("10.0.0.1:1", "X-Real-Ip", "1.1.1.1"),
			[]*http.Request{from("10.0.0.1:1", "X-Real-Ip", "1.1.1.1", "X-Forwarded-For", "2.2.2.2")}, []*http.Request{from("10.0.0.1:1", "X-Real-Ip", "2.2.2.2")}},
		"no address": {weirhttp.ByIP(), from("@"), []*http.Request{from(""), from("pipe")}, []*http.Request{from(peer)}},
		"a header":   {weirhttp.ByHeader("x-api-key"), from(peer, "X-Api-Key", "a"), []*http.Request{from("1.1.1.1:1", "X-Api-Key", "a")}, []*http.Request{from(peer, "X-Api-Key", "b"), from(peer, "X-Api-Key", "A")}},
		"no header":  {weirhttp.ByHeader("X-Api-Key"), from(peer), []*http.Request{from("1.1.1.1:1"), from(peer, "X-Api-Key", ""), from(peer, "X-Api-Key", "a", "X-Api-Key", "b")}, []*http.Request{from(peer, "X-Api-Key", "a")}},
		"credentials": {weirhttp.ByHeader("authorization"), from(peer, "Authorization", "Bearer Sk"),
			[]*http.Request{from(peer, "Authorization", "bearer Sk"), from(peer, "Authorization", "BEARER \tSk ")}, []*http.Request{from(peer, "Authorization", "Bearer sk"), from(peer)}},
		"a long header":   {weirhttp.ByHeader("X-Api-Key"), from(peer, "X-Api-Key", strings.Repeat("a", 5000)), []*http.Request{from(peer, "X-Api-Key", strings.Repeat("a", 5000))}, []*http.Request{from(peer, "X-Api-Key", strings.Repeat("a", 5000)+"b")}},
		"a cookie":        {weirhttp.ByCookie("session"), from(peer, "Cookie", "x=1; session=a"), []*http.Request{from(peer, "Cookie", "session=a; x=2"), from(peer, "Cookie", "session=\"a\"")}, []*http.Request{from(peer, "Cookie", "session=b")}},
		"a cookie twice":  {weirhttp.ByCookie("session"), from(peer, "Cookie", "session=a; session=b"), []*http.Request{from(peer, "Cookie", "session=c; session=d"), from(peer)}, nil},
		"a verified name": {weirhttp.ByJWT("sub", verify), from(peer, "Authorization", "Bearer good-ann"), []*http.Request{from("1.1.1.1:1", "Authorization", "bearer  good-ann")}, []*http.Request{from(peer, "Authorization", "Bearer good-bob"), from(peer, "Authorization", "Bearer forged-ann")}},
		"a number":        {weirhttp.ByJWT("id", verify), from(peer, "Authorization", "Bearer good-ann"), []*http.Request{from(peer, "Authorization", "Bearer good-bob")}, []*http.Request{from(peer)}},
		"no valid token": {weirhttp.ByJWT("sub", verify), from(peer), []*http.Request{from(peer, "Authorization", "Bearer forged-1"), from(peer, "Authorization", "Bearer forged-2"), from(peer, "Authorization", "Basic good-ann"),
			from(peer, "Authorization", "Bearer good-ann", "Authorization", "Bearer good-bob"), from(peer, "Authorization", "Bearer good-"+strings.Repeat("x", 20_000))}, nil},
		"a claim that is no text": {weirhttp.ByJWT("list", verify), from(peer, "Authorization", "Bearer good-ann"), []*http.Request{from(peer)}, nil},
		"two parts": {weirhttp.Join(weirhttp.ByHeader("A"), weirhttp.ByHeader("B")), from(peer, "A", "a", "B", "bc"), []*http.Request{from(peer, "B", "bc", "A", "a")},
			[]*http.Request{from(peer, "A", "ab", "B", "c"), from(peer, "A", "a:", "B", "bc"), from(peer, "A", "", "B", "abc"), from(peer, "A", "abc", "B", ""), from(peer, "A", "a")}},
		"everything": {weirhttp.Global(), from(peer), []*http.Request{from("1.1.1.1:1"), from("@")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 1)), c.key)(ok)
			if got := status(h, c.first); got != 200 {
				t.Fatalf("the first: %d", got)
			}
			for i, r := range c.same {
				if got := status(h, r); got != 429 {
					t.Errorf("the same key, %d: %d", i, got)
				}
			}
			for i, r := range c.others {
				if got := status(h, r); got != 200 {
					t.Errorf("another key, %d: %d", i, got)
				}
			}
		})
	}
}

// TestIPKey: the key of an address is the one that a policy has for it.
func TestIPKey(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "0.0.0.0", "255.255.255.255", "2001:db8::1", "::1", "::ffff:1.2.3.4", "fe80::1%eth0"} {
		key, ok := weirhttp.ByIP()(from(netip.AddrPortFrom(netip.MustParseAddr(address), 9).String()))
		if want := policy.ClientKey(netip.MustParseAddr(address)); !ok || key != want {
			t.Errorf("%s: %q, want %q", address, key, want)
		}
	}
}

// TestIPKeyOfForwarded: an address has one key, however a proxy writes it.
func TestIPKeyOfForwarded(t *testing.T) {
	byIP := weirhttp.ByIP(netip.MustParsePrefix("192.0.2.0/24"))
	for want, forms := range map[string][]string{
		"203.0.113.9":     {"203.0.113.9", "[203.0.113.9]", "203.0.113.9:80", "::ffff:203.0.113.9", "[::ffff:203.0.113.9]:4", "\t203.0.113.9 "},
		"2001:db8::/64":   {"2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80", "2001:0DB8:0::1", "2001:db8::1%eth0"},
		"192.0.2.1":       {"[203.0.113.9", "203.0.113.9]", "[203.0.113.9]]", "[[203.0.113.9]]", "[]", "[", "203.0.113.09"},
		"198.51.100.1":    {"[198.51.100.1], 192.0.2.9"},
		"255.255.255.255": {"255.255.255.255"},
	} {
		for _, form := range forms {
			if key, ok := byIP(from("192.0.2.1:1", "X-Forwarded-For", form)); !ok || key != want {
				t.Errorf("%q: %q, want %q", form, key, want)
			}
		}
	}
}

// TestKeysKeepNoHeader: a key does not keep a long header field in memory.
func TestKeysKeepNoHeader(t *testing.T) {
	long := strings.Repeat("x=1; ", 10_000) + "session=ann"
	list := strings.Repeat("6.6.6.6,", 10_000) + "1.1.1.1"
	for name, c := range map[string]struct {
		key        weirhttp.KeyFunc
		field, all string
		want       string
	}{
		"a cookie":   {weirhttp.ByCookie("session"), "Cookie", long, "ann"},
		"an address": {weirhttp.ByIP(netip.MustParsePrefix("192.0.2.0/24")), "X-Forwarded-For", list, "1.1.1.1"},
	} {
		key, _ := c.key(from("192.0.2.1:1", c.field, c.all))
		begin, at := uintptr(unsafe.Pointer(unsafe.StringData(c.all))), uintptr(unsafe.Pointer(unsafe.StringData(key)))
		if key != c.want || at >= begin && at < begin+uintptr(len(c.all)) {
			t.Errorf("%s: %q is a part of the field", name, key)
		}
	}
}

// TestMissing: what happens to requests without a key.
func TestMissing(t *testing.T) {
	var seen []weirhttp.Response
	observe := weirhttp.Observe(func(m weirhttp.Response) { seen = append(seen, m) })
	for missing, want := range map[weirhttp.Missing][]int{weirhttp.MissingKey: {200, 429}, weirhttp.MissingSkip: {200, 200}, weirhttp.MissingRefuse: {429, 429}} {
		seen = nil
		h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 1)), weirhttp.ByHeader("X-Api-Key"), weirhttp.OnMissing(missing), observe)(ok)
		for i := range want {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, from("192.0.2.1:1"))
			if rec.Code != want[i] {
				t.Errorf("%d: %d, want %d", missing, rec.Code, want[i])
			}
			if missing == weirhttp.MissingRefuse && (!seen[i].Missing || rec.Header().Get("Retry-After") != "") {
				t.Errorf("%+v, %v", seen[i], rec.Header())
			}
		}
		if got := status(h, from("192.0.2.1:1", "X-Api-Key", "a")); got != 200 {
			t.Errorf("with a key: %d", got)
		}
		// two of a field are not none
		if got := status(h, from("192.0.2.1:1", "X-Api-Key", "a", "X-Api-Key", "b")); missing == weirhttp.MissingSkip && got != 200 {
			t.Errorf("the first with two: %d", got)
		}
		if got := status(h, from("192.0.2.1:1", "X-Api-Key", "c", "X-Api-Key", "d")); got != 429 {
			t.Errorf("the second with two: %d", got)
		}
	}
}

// TestHeaderFields: what responses say about the limit.
func TestHeaderFields(t *testing.T) {
	clock := new(weirtest.Clock)
	limit := func(options ...weirhttp.Option) http.Handler {
		l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 2}, keyed.Options{Name: `a "b" ü`, Clock: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		return weirhttp.Limit(weirhttp.Keyed(l), weirhttp.ByIP(), options...)(ok)
	}
	both := limit(weirhttp.Headers(policy.HeaderRateLimit, policy.HeaderXRateLimit))
	for i, want := range []map[string]string{
		{"Ratelimit": `"a \"b\" ??";r=1;t=10`, "Ratelimit-Policy": `"a \"b\" ??";q=2;w=20`, "X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "10", "Retry-After": ""},
		{"Ratelimit": `"a \"b\" ??";r=0;t=20`, "X-Ratelimit-Remaining": "0", "Retry-After": "", "Content-Type": "text/plain; charset=utf-8"},
		{"Ratelimit": `"a \"b\" ??";r=0;t=10`, "X-Ratelimit-Reset": "10", "Retry-After": "10", "Content-Type": "application/problem+json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
	} {
		rec := httptest.NewRecorder()
		both.ServeHTTP(rec, from("192.0.2.1:1", "Accept", "application/json"))
		for name, text := range want {
			if got := rec.Header().Get(name); got != text {
				t.Errorf("%d: %s: %s, want %s", i, name, got, text)
			}
		}
		if body := rec.Body.String(); i == 2 && !strings.Contains(body, `"violated-policies":["a \"b\" ü"]`) {
			t.Errorf("%s", body)
		}
	}
	clock.Set(clock.Now() + int64(10*time.Second)) // what Retry-After promised
	if got := status(both, from("192.0.2.1:1")); got != 200 {
		t.Errorf("after Retry-After: %d", got)
	}
	none := limit(weirhttp.Headers())
	for range 3 {
		rec := httptest.NewRecorder()
		none.ServeHTTP(rec, from("192.0.2.1:1"))
		if rec.Header().Get("RateLimit") != "" || rec.Header().Get("X-RateLimit-Limit") != "" || (rec.Code == 429) != (rec.Header().Get("Retry-After") == "10") {
			t.Errorf("%d: %v", rec.Code, rec.Header())
		}
	}
	// a limit behind another: each has an item, and the one with less remaining has the older fields
	rec := httptest.NewRecorder()
	x := weirhttp.Headers(policy.HeaderRateLimit, policy.HeaderXRateLimit)
	weirhttp.Limit(weirhttp.Keyed(perHour(t, 1)), weirhttp.ByIP(), x)(weirhttp.Limit(weirhttp.Keyed(perHour(t, 9)), weirhttp.Global(), x)(ok)).ServeHTTP(rec, from("192.0.2.1:1"))
	if got := rec.Header(); len(got["Ratelimit"]) != 2 || got.Get("X-RateLimit-Limit") != "1" {
		t.Errorf("%v", got)
	}
}

// TestAllocations: a request that is admitted costs no allocation, and its handler gets what the
// server made.
func TestAllocations(t *testing.T) {
	var got http.ResponseWriter
	h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 1<<19)), weirhttp.ByIP(), weirhttp.Headers())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w }))
	w := httptest.NewRecorder()
	for address, most := range map[string]float64{"192.0.2.1:1": 0, "[2001:db8::1]:1": 1} {
		r := from(address)
		if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n > most {
			t.Errorf("%s: %v allocations, want at most %v", address, n, most)
		}
	}
	if got != http.ResponseWriter(w) {
		t.Errorf("the handler got a %T", got)
	}
}

// TestFieldAllocations: the header fields of several responses share an allocation.
func TestFieldAllocations(t *testing.T) {
	for name, options := range map[string][]weirhttp.Option{
		"RateLimit": nil, "X-RateLimit": {weirhttp.Headers(policy.HeaderXRateLimit)},
	} {
		h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 1<<19)), weirhttp.ByIP(), options...)(ok)
		w, r := httptest.NewRecorder(), from("192.0.2.1:1")
		if n := testing.AllocsPerRun(1000, func() { clear(w.Header()); h.ServeHTTP(w, r) }); n > 0 && !raced.Enabled { // the race detector empties pools
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// TestFieldsOfManyResponses: what one response does to its header fields does not show in another,
// and a change of the limit does.
func TestFieldsOfManyResponses(t *testing.T) {
	l := perHour(t, 5)
	h := weirhttp.Limit(weirhttp.Keyed(l), weirhttp.Global())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("RateLimit-Policy", "another")
		w.Header().Add("RateLimit", "another")
	}))
	policyOf := func() []string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, from("192.0.2.1:1"))
		return rec.Header()["Ratelimit-Policy"]
	}
	for range 2 {
		if got := policyOf(); len(got) != 2 || !strings.Contains(got[0], ";q=5;w=18000") || got[1] != "another" {
			t.Errorf("%q", got)
		}
	}
	if err := l.SetLimit(weir.TokenBucket{Rate: weir.PerHour(2), Burst: 5}); err != nil {
		t.Fatal(err)
	}
	if got := policyOf(); len(got) != 2 || !strings.Contains(got[0], ";q=5;w=9000") {
		t.Errorf("%q", got)
	}
}

// TestExact: of many requests at once exactly those pass that the limit admits, and those that are
// refused take nothing from it.
func TestExact(t *testing.T) {
	clock := new(weirtest.Clock)
	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 50}, keyed.Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	h := weirhttp.Limit(weirhttp.Keyed(l), weirhttp.ByIP())(ok)
	for round, want := range []int64{50, 7} {
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if status(h, from("192.0.2.1:1")) == 200 {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		if admitted.Load() != want {
			t.Errorf("round %d: %d of 500 were admitted, want %d", round, admitted.Load(), want)
		}
		clock.Set(clock.Now() + int64(7*time.Second))
	}
}

// TestCost: requests take what the function says.
func TestCost(t *testing.T) {
	h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 10)), weirhttp.ByIP(), weirhttp.Cost(func(r *http.Request) (n int64) {
		fmt.Sscan(r.Header.Get("Cost"), &n)
		return n
	}))(ok)
	for _, c := range []struct {
		cost string
		want int
	}{{"6", 200}, {"5", 429}, {"0", 200}, {"-1", 400}, {"11", 429}, {"4", 200}, {"1", 429}, {"0", 200}} {
		if got := status(h, from("192.0.2.1:1", "Cost", c.cost)); got != c.want {
			t.Errorf("%s: %d, want %d", c.cost, got, c.want)
		}
	}
}

// TestResponse: handlers learn what was decided.
func TestResponse(t *testing.T) {
	var in weirhttp.Response
	seen := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var there bool
		if in, there = weirhttp.ResponseFrom(r.Context()); !there {
			t.Error("no response in the context")
		}
		if d, _ := weirhttp.DecisionFrom(r.Context()); d != in.Decision {
			t.Errorf("%+v", d)
		}
		w.WriteHeader(http.StatusTeapot)
	})
	h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 1)), weirhttp.ByIP(), weirhttp.InContext(), weirhttp.Refused(seen))(seen)
	for i := range 2 {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, from("192.0.2.1:1"))
		if in.Limit != "per-hour" || in.Key != "192.0.2.1" || in.Cost != 1 || in.Decision.Allowed != (i == 0) || in.Decision.Limit != 1 || rec.Code != http.StatusTeapot {
			t.Errorf("%d: %+v, status %d", i, in, rec.Code)
		}
		if (rec.Header().Get("Retry-After") == "3600") != (i == 1) || rec.Header().Get("RateLimit") == "" {
			t.Errorf("%d: %v", i, rec.Header())
		}
	}
	if _, there := weirhttp.ResponseFrom(context.Background()); there {
		t.Error("a response from nowhere")
	}
}

// TestShadow: a shadow limit decides, and does nothing.
func TestShadow(t *testing.T) {
	var decided []bool
	h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 1)), weirhttp.ByIP(), weirhttp.Shadow(), weirhttp.Observe(func(m weirhttp.Response) {
		decided = append(decided, m.Decision.Allowed && m.Shadow)
	}))(ok)
	for range 2 {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, from("192.0.2.1:1"))
		if rec.Code != 200 || len(rec.Header()) != 1 {
			t.Errorf("%d: %v", rec.Code, rec.Header())
		}
	}
	if fmt.Sprint(decided) != "[true false]" {
		t.Errorf("%v", decided)
	}
}

// TestSeveral: limits that are charged together are charged all or none.
func TestSeveral(t *testing.T) {
	few, many := perHour(t, 2), perHour(t, 5)
	tight, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 2}, keyed.Options{Name: "tight"})
	if err != nil {
		t.Fatal(err)
	}
	h := weirhttp.Limit(weirhttp.Keyed(many, tight), weirhttp.ByIP())(ok)
	for range 9 {
		status(h, from("192.0.2.1:1"))
	}
	if left := many.Peek("192.0.2.1", 1).Remaining; left != 3 {
		t.Errorf("%d left, want 3: only 2 requests passed", left)
	}
	defer func() {
		if recover() == nil {
			t.Error("two limiters with one name are a group")
		}
	}()
	weirhttp.Keyed(many, few)
}

// TestMistakes: what a program may not do shows when it starts.
func TestMistakes(t *testing.T) {
	l := weirhttp.Keyed(perHour(t, 1))
	var shared *weir.Shared
	for name, f := range map[string]func(){
		"no limiter":      func() { weirhttp.Limit(nil, weirhttp.Global()) },
		"a nil limiter":   func() { weirhttp.Limit(shared, weirhttp.Global()) },
		"no key":          func() { weirhttp.Limit(l, nil) },
		"no handler":      func() { weirhttp.Limit(l, weirhttp.Global())(nil) },
		"a status":        func() { weirhttp.Status(200) },
		"a header field":  func() { weirhttp.ByHeader("a b") },
		"the host":        func() { weirhttp.ByHeader("host") },
		"a set of fields": func() { weirhttp.Headers("X-RateLimit") },
		"a prefix":        func() { weirhttp.ByIP(netip.Prefix{}) },
		"no verifier":     func() { weirhttp.ByJWT("sub", nil) },
		"no parts":        func() { weirhttp.Join() },
		"a limiter that cannot wait": func() {
			weirhttp.Limit(failing{}, weirhttp.Global(), weirhttp.Wait(time.Second))
		},
	} {
		func() {
			defer func() {
				if text, is := recover().(string); !is || !strings.HasPrefix(text, "weirhttp: ") {
					t.Errorf("%s: %v", name, text)
				}
			}()
			f()
		}()
	}
}

// failing is a Limiter without an answer.
type failing struct{}

func (failing) Take(context.Context, string, int64) (weir.Decision, error) {
	return weir.Decision{}, errors.New("down")
}

// TestOwnLimiter: errors of a limiter of the user's own are refusals, unless the user allows them.
func TestOwnLimiter(t *testing.T) {
	var seen weirhttp.Response
	observe := weirhttp.Observe(func(m weirhttp.Response) { seen = m })
	if got := status(weirhttp.Limit(failing{}, weirhttp.Global(), observe)(ok), from("192.0.2.1:1")); got != 429 || seen.Err == nil || seen.Decision.Source != weir.SourceDeny {
		t.Errorf("%d, %+v", got, seen)
	}
	allow := weirhttp.Fallback(failover.Options{OnFailure: failover.Allow})
	if got := status(weirhttp.Limit(failing{}, weirhttp.Global(), observe, allow)(ok), from("192.0.2.1:1")); got != 200 || seen.Err == nil || seen.Decision.Source != weir.SourceAllow {
		t.Errorf("%d, %+v", got, seen)
	}
}
