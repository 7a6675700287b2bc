package server

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/server/policyfile"
)

const hashSecret = "0123456789 the secret of the hashes"

// keyLine is the line of an API key.
func keyLine(customer, plan, key string) string {
	h := policyfile.HashAPIKey([]byte(hashSecret), key)
	return fmt.Sprintf("- { customer: %s, plan: %s, hmac_sha256: %s }\n", customer, plan, hex.EncodeToString(h[:]))
}

// withKey sends a request with an API key, and returns the status and all that came back.
func withKey(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Set("Accept", "application/problem+json"); key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, fmt.Sprint(resp.Header) + string(body)
}

// TestPlans: the limits of a customer are those of the plan; the files with keys are read again when
// they change, all or nothing; and neither a key nor a hash is in anything that the server writes.
func TestPlans(t *testing.T) {
	dir := t.TempDir()
	const free, pro, guess = "weir_free-key-in-clear", "weir_pro-key-in-clear", "weir_guess-of-a-client"
	write(t, filepath.Join(dir, "s"), hashSecret)
	write(t, filepath.Join(dir, "token"), token)
	both := keyLine("fred", "free", free) + keyLine("acme", "pro", pro)
	keys := filepath.Join(dir, "keys.yaml")
	write(t, keys, both)
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
admin: { token_file: token, state_file: state.json }
access_log: access.log
plans: { from: api_key, api_keys: keys.yaml, hash_secret_file: s }
limits:
  requests: { key: customer, log: warn, token_bucket: { rate: 1/h, burst: 2 }, plans: { free: { burst: 1 }, pro: { burst: 5 } } }
routes: [{ match: /, limits: [requests], respond: { status: 200, body: served } }]
`)
	r := serve(t, Options{Path: path})
	a := api{t: t, url: "http://" + r.Admin, token: token}
	var said strings.Builder
	get := func(key string) int {
		status, text := withKey(t, "http://"+r.Gateway+"/", key)
		said.WriteString(text)
		return status
	}
	admitted := func(key string) (n int) {
		for get(key) == http.StatusOK {
			n++
		}
		return n
	}
	if f, p := admitted(free), admitted(pro); f != 1 || p != 5 {
		t.Errorf("free %d, pro %d", f, p)
	}
	for _, key := range []string{"", guess} {
		if status, text := withKey(t, "http://"+r.Gateway+"/", key); status != http.StatusUnauthorized || !strings.Contains(text, "Www-Authenticate:[Bearer]") || !strings.Contains(text, `"status":401`) {
			t.Errorf("%q: %d %s", key, status, text)
		}
	}
	metrics := a.ask("GET", "/metrics", "").text
	for _, want := range []string{`weir_gateway_requests_total{outcome="unknown_customer"} 2`, "weir_api_keys 2"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}

	write(t, keys, both+"- { customer: mega, hmac_sha256: "+guess+" }\n")
	until(t, "an invalid file is logged", func() bool {
		return strings.Contains(r.log.String(), `keys.yaml","line":3,"column":34`)
	})
	if get(free) != http.StatusTooManyRequests || get(guess) != http.StatusUnauthorized {
		t.Error("an invalid file changes something")
	}
	write(t, keys, keyLine("fred", "pro", free))
	until(t, "the plan of fred has changed", func() bool { return get(free) == http.StatusOK })
	if n := admitted(free); n != 3 {
		t.Errorf("fred has used 2 of 5: %d more", n)
	}
	if get(pro) != http.StatusUnauthorized {
		t.Error("a key that was taken out is valid")
	}
	if got := a.ask("POST", "/v1/reload", ""); got.Status != 200 || get(free) != http.StatusTooManyRequests {
		t.Errorf("a reload: %+v", got)
	}

	for _, page := range []string{"/v1/status", "/v1/policy", "/v1/overrides", "/metrics"} {
		said.WriteString(a.ask("GET", page, "").text)
	}
	said.WriteString(r.log.String())
	r.end(t)
	lines, err := os.ReadFile(filepath.Join(dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	said.Write(lines)
	for name, secret := range map[string]string{"the secret": hashSecret, "a key": free, "another key": pro, "a guess": guess,
		"a hash": keyLine("", "", free)[36:60]} {
		if strings.Contains(said.String(), secret) {
			t.Errorf("%s is in what the server wrote", name)
		}
	}
}

// TestPlanByToken: tokens of an issuer choose the plan and the customer. An update with the same keys
// goes on with them.
func TestPlanByToken(t *testing.T) {
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	write(t, filepath.Join(dir, "jwks.json"), fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":%q}]}`, b64(public)))
	signed := func(customer, plan string, expires time.Time) string {
		text := b64([]byte(`{"alg":"EdDSA","kid":"k1"}`)) + "." +
			b64(fmt.Appendf(nil, `{"iss":"https://id.example","aud":"api","org":%q,"plan":%q,"exp":%d}`, customer, plan, expires.Unix()))
		return text + "." + b64(ed25519.Sign(private, []byte(text)))
	}
	path := filepath.Join(dir, "policy.yaml")
	page := `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
plans: { from: jwt.plan, jwt: { jwks: jwks.json, issuer: "https://id.example", audience: api, customer: org } }
limits:
  requests: { key: customer, token_bucket: { rate: 1/h, burst: 2 }, plans: { pro: { burst: 5 } } }
routes: [{ match: /, limits: [requests], respond: { status: 200, body: served } }]
`
	write(t, path, page)
	r := serve(t, Options{Path: path})
	get := func(token string) int {
		req, err := http.NewRequest("GET", "http://"+r.Gateway+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	admitted := func(token string) (n int) {
		for get(token) == http.StatusOK {
			n++
		}
		return n
	}
	later := time.Now().Add(time.Hour)
	if n := admitted(signed("acme", "pro", later)); n != 5 {
		t.Errorf("pro: %d", n)
	}
	if n := admitted(signed("acme", "free", later)); n != 0 {
		t.Errorf("the same customer with another plan: %d more", n)
	}
	if n := admitted(signed("fred", "free", later.Add(time.Second))); n != 2 {
		t.Errorf("free: %d", n)
	}
	for name, token := range map[string]string{
		"expired": signed("acme", "pro", time.Now().Add(-time.Hour)), "cut": signed("acme", "pro", later)[:150], "none": "eyJhbGciOiJub25lIn0." + b64([]byte(`{"org":"acme","plan":"pro"}`)) + ".",
	} {
		if status := get(token); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, status)
		}
	}
	write(t, path, page+"# changed\n")
	until(t, "the policy is reloaded", func() bool { return strings.Contains(r.log.String(), "policy reloaded") })
	if status := get(signed("dora", "pro", later)); status != http.StatusOK {
		t.Errorf("after an update: %d", status)
	}
	r.end(t)
	if strings.Contains(r.log.String(), "eyJ") {
		t.Error("a token is in the log")
	}
}
