package weirjwt_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/weirjwt"
)

// An issuer signs tokens, and serves its keys.
type issuer struct {
	t      *testing.T
	keys   map[string]crypto.Signer
	server *httptest.Server
	reads  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc] // instead of the keys
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: map[string]crypto.Signer{"rsa": commonKey()}}
	i.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.reads.Add(1)
		if other := i.answer.Load(); other != nil {
			(*other)(w, r)
			return
		}
		w.Write(i.jwks())
	}))
	t.Cleanup(i.server.Close)
	return i
}

// commonKey is the RSA key of all issuers: making one takes long.
var commonKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// add adds a key: its kind is the first letters of its ID.
func (i *issuer) add(id string) {
	i.t.Helper()
	var err error
	if strings.HasPrefix(id, "rsa") {
		i.keys[id], err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		i.keys[id], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *issuer) jwks() []byte {
	var all []map[string]string
	for _, id := range slices.Sorted(maps.Keys(i.keys)) {
		switch k := i.keys[id].Public().(type) {
		case *rsa.PublicKey:
			all = append(all, map[string]string{"kty": "RSA", "kid": id, "use": "sig", "n": b64(k.N.Bytes()), "e": "AQAB"})
		case *ecdsa.PublicKey:
			point, err := k.Bytes()
			if err != nil {
				i.t.Fatal(err)
			}
			all = append(all, map[string]string{"kty": "EC", "crv": "P-256", "kid": id, "x": b64(point[1:33]), "y": b64(point[33:])})
		}
	}
	text, err := json.Marshal(map[string]any{"keys": all})
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// claims are valid ones; changes come as NAME, VALUE pairs, and nil takes a claim out.
func claims(now time.Time, changes ...any) string {
	all := map[string]any{"iss": "https://id.example", "aud": "api", "sub": "acme", "plan": "pro", "exp": now.Add(time.Hour).Unix()}
	for i := 0; i < len(changes); i += 2 {
		if name := changes[i].(string); changes[i+1] == nil {
			delete(all, name)
		} else {
			all[name] = changes[i+1]
		}
	}
	text, _ := json.Marshal(all)
	return string(text)
}

// sign signs a payload, as it is, with the key of that ID; header is the whole header.
func (i *issuer) sign(id, header, payload string) string {
	i.t.Helper()
	text := b64([]byte(header)) + "." + b64([]byte(payload))
	sum := sha256.Sum256([]byte(text))
	switch k := i.keys[id].(type) {
	case *rsa.PrivateKey:
		signature, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
		if err != nil {
			i.t.Fatal(err)
		}
		return text + "." + b64(signature)
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			i.t.Fatal(err)
		}
		return text + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	i.t.Fatalf("no key %q", id)
	return ""
}

const rs = `{"alg":"RS256","kid":"rsa"}`

// clock is a time that tests set.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.now.Load()) }
func (c *clock) forward(d time.Duration) { c.now.Add(int64(d)) }

func (i *issuer) verifier(c *clock, change func(*weirjwt.Options)) *weirjwt.Verifier {
	i.t.Helper()
	o := weirjwt.Options{JWKS: i.server.URL + "/jwks", Issuer: "https://id.example", Audience: "api", Now: c.Now, Timeout: time.Minute, Client: weirjwt.NewClient()}
	o.Client.Transport.(*http.Transport).TLSClientConfig = i.server.Client().Transport.(*http.Transport).TLSClientConfig
	if change != nil {
		change(&o)
	}
	v, err := weirjwt.New(i.t.Context(), o)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(v.Close)
	return v
}

// TestVerify: valid tokens have their claims, and are remembered until they expire.
func TestVerify(t *testing.T) {
	i, c := newIssuer(t), newClock()
	i.add("ec")
	v := i.verifier(c, nil)
	payload := claims(c.Now(), "n", 7, "big", json.Number("12345678901234567"), "admin", true, "roles", []string{"a"}, "o", map[string]int{"a": 1}, "null", json.RawMessage("null"), "jti", 17)
	for id, header := range map[string]string{"rsa": rs, "ec": `{"alg":"ES256","kid":"ec","typ":"JWT"}`} {
		token := i.sign(id, header, payload)
		for range 2 {
			texts, err := v.Texts(t.Context(), token)
			if err != nil {
				t.Fatal(id, err)
			}
			for name, want := range map[string]string{"sub": "acme", "plan": "pro", "n": "7", "big": "12345678901234567", "admin": "true", "roles": "", "o": "", "null": "", "jti": "17"} {
				if got, ok := texts[name]; !ok || got != want {
					t.Errorf("%s: %s = %q, %v", id, name, got, ok)
				}
			}
		}
		all, err := v.Verify(t.Context(), token)
		if err != nil || all["sub"] != "acme" || all["n"] != json.Number("7") {
			t.Errorf("%v, %v", all, err)
		}
	}
	if n := v.Remembered(); n != 2 {
		t.Errorf("%d remembered", n)
	}
	token := i.sign("rsa", rs, payload)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	c.forward(time.Hour)
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, weirjwt.ErrInvalid) {
		t.Errorf("a remembered token that has expired: %v", err)
	}
}

// TestAttacks: none of these tokens is valid, no error contains a part of one, and none is remembered.
func TestAttacks(t *testing.T) {
	i, c := newIssuer(t), newClock()
	v := i.verifier(c, nil)
	good := claims(c.Now())
	public := i.keys["rsa"].Public().(*rsa.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	shared := func(secret []byte) string {
		text := b64([]byte(`{"alg":"HS256","kid":"rsa"}`)) + "." + b64([]byte(good))
		m := hmac.New(sha256.New, secret)
		m.Write([]byte(text))
		return text + "." + b64(m.Sum(nil))
	}
	other := newIssuer(t)
	other.add("rsa")
	valid := i.sign("rsa", rs, good)
	parts := strings.Split(valid, ".")
	own := other.jwks()
	tokens := map[string]string{
		"alg none":                       b64([]byte(`{"alg":"none"}`)) + "." + b64([]byte(good)) + ".",
		"alg None with a kid":            b64([]byte(`{"alg":"None","kid":"rsa"}`)) + "." + b64([]byte(good)) + ".",
		"no alg":                         i.sign("rsa", `{"kid":"rsa"}`, good),
		"HS256 with the public key":      shared(der),
		"HS256 with the PEM":             shared(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		"HS256 with the modulus":         shared(public.N.Bytes()),
		"another alg of the key":         i.sign("rsa", `{"alg":"ES256","kid":"rsa"}`, good),
		"another issuer's key":           other.sign("rsa", rs, good),
		"a key in the header":            other.sign("rsa", `{"alg":"RS256","kid":"rsa","jwk":`+string(own[9:len(own)-2])+`}`, good),
		"a URL of keys in the header":    other.sign("rsa", `{"alg":"RS256","kid":"rsa","jku":"`+other.server.URL+`"}`, good),
		"an unknown kid":                 i.sign("rsa", `{"alg":"RS256","kid":"rsa2"}`, good),
		"a kid with a path":              i.sign("rsa", `{"alg":"RS256","kid":"../../../../etc/passwd"}`, good),
		"a kid that is a URL":            other.sign("rsa", `{"alg":"RS256","kid":"`+other.server.URL+`"}`, good),
		"a kid with SQL":                 i.sign("rsa", `{"alg":"RS256","kid":"' OR 1=1 --"}`, good),
		"a critical extension":           i.sign("rsa", `{"alg":"RS256","kid":"rsa","crit":["x"],"x":1}`, good),
		"no critical extension":          i.sign("rsa", `{"alg":"RS256","kid":"rsa","crit":[]}`, good),
		"kid twice":                      i.sign("rsa", `{"alg":"RS256","kid":"x","kid":"rsa"}`, good),
		"alg twice":                      i.sign("rsa", `{"alg":"none","alg":"RS256","kid":"rsa"}`, good),
		"a name twice in a claim":        i.sign("rsa", rs, strings.Replace(good, "{", `{"org":{"id":1,"id":2},`, 1)),
		"a name twice, deeper":           i.sign("rsa", rs, strings.Replace(good, "{", `{"org":[{"a":{"x":[],"id":1}},{"a":{"b":{},"id":1,"c":null,"\u0069d":2}}],`, 1)),
		"a claim twice":                  i.sign("rsa", rs, strings.Replace(good, "{", `{"sub":"someone-else",`, 1)),
		"expired":                        i.sign("rsa", rs, claims(c.Now(), "exp", c.Now().Unix())),
		"no expiry":                      i.sign("rsa", rs, claims(c.Now(), "exp", nil)),
		"an expiry that is a text":       i.sign("rsa", rs, claims(c.Now(), "exp", "never")),
		"nbf in the future":              i.sign("rsa", rs, claims(c.Now(), "nbf", c.Now().Add(time.Minute).Unix())),
		"iat in the future":              i.sign("rsa", rs, claims(c.Now(), "iat", c.Now().Add(time.Minute).Unix())),
		"another issuer":                 i.sign("rsa", rs, claims(c.Now(), "iss", "https://id.example.attacker")),
		"an issuer with a slash":         i.sign("rsa", rs, claims(c.Now(), "iss", "https://id.example/")),
		"no issuer":                      i.sign("rsa", rs, claims(c.Now(), "iss", nil)),
		"another audience":               i.sign("rsa", rs, claims(c.Now(), "aud", "shop")),
		"no audience":                    i.sign("rsa", rs, claims(c.Now(), "aud", nil)),
		"an audience that is an object":  i.sign("rsa", rs, claims(c.Now(), "aud", map[string]string{"api": "api"})),
		"other claims under a signature": parts[0] + "." + b64([]byte(claims(c.Now(), "plan", "enterprise"))) + "." + parts[2],
		"no signature":                   parts[0] + "." + parts[1] + ".",
		"half a signature":               valid[:len(valid)-100],
		"claims that are a list":         i.sign("rsa", rs, "[]"),
		"1 MiB":                          i.sign("rsa", rs, claims(c.Now(), "x", strings.Repeat("x", 1<<20))),
		"16 KiB and a byte":              "eyJ" + strings.Repeat("x", 16<<10),
		"empty":                          "", "dots": "..", "not base64": "eyJ!.eyJ!.!",
	}
	for name, token := range tokens {
		got, err := v.Verify(t.Context(), token)
		if !errors.Is(err, weirjwt.ErrInvalid) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		if len(token) > 20 && (strings.Contains(err.Error(), token[:20]) || strings.Contains(err.Error(), "acme")) {
			t.Errorf("%s: the error has a part of the token: %v", name, err)
		}
	}
	if other.reads.Load() != 0 {
		t.Error("the keys of a stranger were read")
	}
	if n := v.Remembered(); n != 0 {
		t.Errorf("%d are remembered", n)
	}
	for name, token := range map[string]string{"the plain one": valid, "several audiences": i.sign("rsa", rs, claims(c.Now(), "aud", []string{"shop", "api"})),
		"no kid, and a single key": i.sign("rsa", `{"alg":"RS256"}`, good)} {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRotation: an unknown key is looked for once, and not again before the interval is over. A key
// that is gone takes its remembered tokens with it.
func TestRotation(t *testing.T) {
	i, c := newIssuer(t), newClock()
	v := i.verifier(c, nil)
	old := i.sign("rsa", rs, claims(c.Now()))
	if _, err := v.Verify(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	unknown := func(n int) {
		t.Helper()
		for k := range 20 {
			if _, err := v.Verify(t.Context(), i.sign("rsa", fmt.Sprintf(`{"alg":"RS256","kid":"guess-%d-%d"}`, n, k), claims(c.Now()))); err == nil {
				t.Error("an unknown key")
			}
		}
	}
	if unknown(0); i.reads.Load() != 1 {
		t.Errorf("%d reads within the interval", i.reads.Load())
	}
	i.add("ec-new")
	fresh := i.sign("ec-new", `{"alg":"ES256","kid":"ec-new"}`, claims(c.Now()))
	c.forward(time.Minute)
	if _, err := v.Verify(t.Context(), fresh); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	if unknown(1); i.reads.Load() != 2 {
		t.Errorf("%d reads after two intervals", i.reads.Load())
	}
	delete(i.keys, "rsa")
	c.forward(time.Minute)
	unknownToken := i.sign("ec-new", `{"alg":"ES256","kid":"another"}`, claims(c.Now()))
	if _, err := v.Verify(t.Context(), unknownToken); err == nil {
		t.Error("an unknown key")
	}
	if _, err := v.Verify(t.Context(), old); err == nil {
		t.Error("a remembered token of a key that is gone")
	}
}

// TestKeysThatFail: whatever becomes of the issuer's server, the present keys stay valid, no request
// waits beyond the bound, and the failure is reported.
func TestKeysThatFail(t *testing.T) {
	release := make(chan struct{})
	source := newIssuer(t)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(source.jwks()) }))
	defer plain.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"no keys":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[]}`) },
		"a secret": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[{"kty":"oct","kid":"rsa","k":"AAAA"}]}`)
		},
		"a weak key": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[{"kty":"RSA","kid":"rsa","n":"AQAB","e":"AQAB"}]}`)
		},
		"many keys": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[{}`+strings.Repeat(",{}", 100)+`]}`)
		},
		"another place": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"keys over http": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plain.URL, http.StatusFound)
		},
		"100 MiB": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		},
		"it hangs": func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
		"it hangs in the body": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"keys":[`)
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, c := newIssuer(t), newClock()
			failed := make(chan error, 100)
			v := i.verifier(c, func(o *weirjwt.Options) {
				o.Timeout = 200 * time.Millisecond
				if !strings.HasPrefix(name, "it hangs") {
					o.Timeout = time.Minute
				}
				o.Failed = func(err error) { failed <- err }
			})
			valid := i.sign("rsa", rs, claims(c.Now().Add(24*time.Hour)))
			for _, err := v.Verify(t.Context(), valid); err != nil; _, err = v.Verify(t.Context(), valid) {
				c.forward(time.Second) // a busy machine: the first read took longer than the timeout
			}
			i.answer.Store(&answer)
			c.forward(10 * time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := v.Verify(ctx, i.sign("rsa", `{"alg":"RS256","kid":"unknown"}`, claims(c.Now()))); err == nil {
				t.Error("an unknown key")
			}
			if ctx.Err() != nil {
				t.Error("the request waited for the issuer")
			}
			if err := <-failed; err == nil {
				t.Error("no error")
			}
			if _, err := v.Verify(ctx, i.sign("rsa", rs, claims(c.Now(), "n", 1))); err != nil {
				t.Errorf("the present keys: %v", err)
			}
			i.answer.Store(nil)
			i.add("ec-later")
			c.forward(time.Minute)
			if _, err := v.Verify(ctx, i.sign("ec-later", `{"alg":"ES256","kid":"ec-later"}`, claims(c.Now()))); err != nil {
				// a read that hung may have ended just now: the next one is due in a minute
				c.forward(time.Minute)
				if _, err = v.Verify(ctx, i.sign("ec-later", `{"alg":"ES256","kid":"ec-later"}`, claims(c.Now()))); err != nil {
					t.Errorf("after the failure: %v", err)
				}
			}
		})
	}
	close(release)
}

// TestStartWithoutKeys: an issuer that is down at the start is tried again.
func TestStartWithoutKeys(t *testing.T) {
	i, c := newIssuer(t), newClock()
	down := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	i.answer.Store(&down)
	v := i.verifier(c, func(o *weirjwt.Options) { o.Failed = func(error) {} })
	token := i.sign("rsa", rs, claims(c.Now()))
	if _, err := v.Verify(t.Context(), token); err == nil {
		t.Error("without keys")
	}
	i.answer.Store(nil)
	c.forward(time.Second)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Error(err)
	}
}

// TestFile: keys in a file are read again when they have changed.
func TestFile(t *testing.T) {
	i, c := newIssuer(t), newClock()
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, i.jwks(), 0o600); err != nil {
		t.Fatal(err)
	}
	v := i.verifier(c, func(o *weirjwt.Options) { o.JWKS = path })
	if _, err := v.Verify(t.Context(), i.sign("rsa", rs, claims(c.Now()))); err != nil {
		t.Fatal(err)
	}
	i.add("ec")
	if err := os.WriteFile(path, i.jwks(), 0o600); err != nil {
		t.Fatal(err)
	}
	c.forward(time.Second)
	if _, err := v.Verify(t.Context(), i.sign("ec", `{"alg":"ES256","kid":"ec"}`, claims(c.Now()))); err != nil {
		t.Error(err)
	}
	if i.reads.Load() != 0 {
		t.Error("a URL was read")
	}
}

// TestRememberedIsBounded: many valid tokens take no more room than MaxTokens.
func TestRememberedIsBounded(t *testing.T) {
	i, c := newIssuer(t), newClock()
	i.add("ec")
	v := i.verifier(c, func(o *weirjwt.Options) { o.MaxTokens = 10 })
	for n := range 50 {
		if _, err := v.Verify(t.Context(), i.sign("ec", `{"alg":"ES256","kid":"ec"}`, claims(c.Now(), "n", n))); err != nil {
			t.Fatal(err)
		}
	}
	if n := v.Remembered(); n > 10 || n < 5 {
		t.Errorf("%d are remembered", n)
	}
}
