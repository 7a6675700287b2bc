package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// accounts are a gateway whose API keys are in Redis, as a user with few rights.
type accounts struct {
	*gateway
	redis  *servers.RedisServer
	policy string // path of a policy with the same keys, for weir key
}

// startAccounts starts a gateway. of is the settings of plans.api_keys besides the store.
func startAccounts(t *testing.T, of string) *accounts {
	t.Helper()
	s := servers.StartRedis(t, servers.RedisOptions{Config: []string{aUser}})
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(planSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("STORE", strings.Replace(s.URL(), "redis://", "redis://weir:s3cret@", 1), "SECRET", secret, "OF", of).Replace(`
stores: { accounts: { url: "STORE", deadline: 100ms } }
plans: { from: api_key, api_keys: { store: accounts, OF }, hash_secret_file: SECRET, default: free }
limits:
  requests:
    key: customer
    token_bucket: { rate: 1/h, burst: 100000 }
    plans: { pro: { burst: 200000 } }
routes: [{ match: /, limits: [requests], respond: { status: 200 } }]
`)
	a := &accounts{redis: s, policy: filepath.Join(dir, "keys.yaml")}
	if err := os.WriteFile(a.policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.gateway = startWeir(t, text)
	return a
}

// key runs weir key, and returns what it prints: for a new key, its hash and the key.
func (a *accounts) key(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"key", "--config", a.policy}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("weir key %v: %v\n%s", args, err, said.String())
	}
	lines := strings.Fields(said.String())
	if len(lines) == 0 {
		return strings.TrimSpace(out.String()), ""
	}
	return strings.TrimSpace(out.String()), lines[len(lines)-1]
}

// with sends a request with a key. plan is the plan that decided; empty if none did.
func (a *accounts) with(t *testing.T, key string) (status int, plan string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+a.Gateway, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	switch policy := resp.Header.Get("RateLimit-Policy"); {
	case strings.Contains(policy, "q=200000"):
		plan = "pro"
	case policy != "":
		plan = "free"
	}
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "1" {
		t.Errorf("503 with Retry-After: %q", resp.Header.Get("Retry-After"))
	}
	return resp.StatusCode, plan
}

// TestKeysInRedis: keys that weir key writes into Redis count within refresh, and so do other plans and
// removed keys. Redis has no key and no secret. Known keys survive outages, in which others get 503.
func TestKeysInRedis(t *testing.T) {
	a := startAccounts(t, "refresh: 1s, stale: 3s")
	// how soon that is, a test of server/active holds in virtual time
	becomes := func(when, key string, status int, plan string) {
		t.Helper()
		servers.Poll(t, when, func() bool { got, of := a.with(t, key); return got == status && of == plan })
	}
	const guess = "a-guess"
	becomes("before there are keys", guess, 401, "")
	hash, key := a.key(t, "--customer", "acme", "--plan", "pro")
	_, free := a.key(t, "--customer", "fred")
	becomes("a new key", free, 200, "free")
	if list, _ := a.key(t, "--list", "--customer", "acme"); list != "- { customer: acme, plan: pro, hmac_sha256: "+strconv.Quote(hash)+" }" && list != "- { customer: acme, plan: pro, hmac_sha256: "+hash+" }" {
		t.Errorf("the list: %s", list)
	}

	for i, spoil := range [][]string{{"HSET", "weir:apikey:HASH", "customer", "x"}, {"SET", "weir:apikey:HASH", ""}} {
		hash, spoilt := a.key(t, "--customer", "spoilt")
		name := strings.Replace(spoil[1], "HASH", hash, 1)
		spoil[1] = name
		for _, command := range [][]string{{"DEL", name}, spoil} {
			if _, err := a.redis.Do(t.Context(), command...); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		servers.Poll(t, "an entry that is not valid, and then a key that is looked up", func() bool {
			for range 3 { // a pause of the lookups can end once in between
				n++
				got, _ := a.with(t, spoilt)
				other, _ := a.with(t, fmt.Sprintf("%s-%d-%d", guess, i, n))
				if got != 503 || other != 401 {
					return false
				}
			}
			return true
		})
		a.key(t, "--list")
		a.key(t, "--remove", hash)
	}
	known := time.Now() // before the only lookup of the key
	becomes("a new key", key, 200, "pro")
	if err := a.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	becomes("paused: an unknown key is not looked up", guess+"2", 503, "")
	for time.Since(known) < 2500*time.Millisecond { // beyond refresh, and within stale
		if got, of := a.with(t, key); time.Since(known) < 3*time.Second && (got != 200 || of != "pro") {
			t.Errorf("paused: a known key: %d %q", got, of)
		}
	}
	becomes("paused beyond stale", key, 503, "")
	a.redis.Resume()
	becomes("resumed", key, 200, "pro")
	becomes("resumed", guess+"2", 401, "")

	conn, err := a.redis.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	all, err := conn.Do(t.Context(), "KEYS", "*")
	if err != nil {
		t.Fatal(err)
	}
	names, _ := all.([]any)
	text := ""
	for _, name := range names {
		value, err := conn.Do(t.Context(), "DUMP", name.(string))
		if err != nil {
			t.Fatal(err)
		}
		text += name.(string) + " " + value.(string) + "\n"
	}
	if !strings.Contains(text, "weir:apikey:"+hash) || strings.Contains(text, key) || strings.Contains(text, planSecret) {
		t.Errorf("Redis holds:\n%q", text)
	}

	a.key(t, "--remove", hash)
	becomes("removed", key, 401, "")
	known = time.Now().Add(-time.Second)
	becomes("before it is killed", free, 200, "free") // it was looked up at most refresh before
	a.redis.Kill()
	if got, of := a.with(t, free); time.Since(known) < 3*time.Second && (got != 200 || of != "free") {
		t.Errorf("killed: a known key: %d %q", got, of)
	}
	becomes("killed beyond stale", free, 503, "")
	if err := a.redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	becomes("started without its data", free, 401, "")
	made := time.Now()
	_, again := a.key(t, "--customer", "acme", "--expires", "3s")
	if got, of := a.with(t, again); time.Since(made) < 3*time.Second && (got != 200 || of != "free") {
		t.Errorf("a key with an end: %d %q", got, of)
	}
	becomes("after its end", again, 401, "")
	if out := a.Output(); strings.Contains(out, hash) || strings.Contains(out, key) || strings.Contains(out, planSecret) || strings.Contains(out, "s3cret") {
		t.Errorf("the log has a secret:\n%s", out)
	}
	for _, want := range []string{`weir_gateway_requests_total{outcome="unverified_customer"}`, `weir_api_keys_lookups_total{result="found"}`, `weir_api_keys_lookups_total{result="failed"}`} {
		if v := a.value(t, want); v == "" || v == "0" {
			t.Errorf("%s is %q", want, v)
		}
	}
}

// TestGuessesAndRedis: guesses reach Redis with no more than a thousand lookups a second, and the same
// guess once in each refresh.
func TestGuessesAndRedis(t *testing.T) {
	a := startAccounts(t, "refresh: 1h")
	_, key := a.key(t, "--customer", "acme")
	lookups := func() int {
		fields, err := a.redis.Info(t.Context(), "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(fields["cmdstat_get"], "calls=")
		text, _, _ := strings.Cut(after, ",")
		n, _ := strconv.Atoi(text)
		return n
	}
	const guess = "the-same-guess"
	servers.Poll(t, "a guess is unknown", func() bool { status, _ := a.with(t, guess); return status == 401 })
	before := lookups()
	for range 300 {
		if status, _ := a.with(t, guess); status != 401 {
			t.Fatalf("a guess: %d", status)
		}
	}
	if n := lookups() - before; n != 0 {
		t.Errorf("%d more lookups of one guess", n)
	}
	before = lookups()
	began, statuses := time.Now(), map[int]int{}
	for i := range 3000 {
		status, _ := a.with(t, "guess"+strconv.Itoa(i))
		statuses[status]++
	}
	most := 1000 + int(time.Since(began).Seconds()*1000) + 1
	if n := lookups() - before; n > most || statuses[401]+statuses[503] != 3000 || statuses[401] > n {
		t.Errorf("%d lookups in %v, %v", n, time.Since(began), statuses)
	}
	servers.Poll(t, "a valid key after the guesses", func() bool { status, _ := a.with(t, key); return status == 200 })
}
