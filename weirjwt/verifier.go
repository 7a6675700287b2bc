// Package weirjwt verifies JSON Web Tokens with the keys of their issuer (JWKS), from a file or a
// URL. It is for weirhttp.ByJWT, and for plans by token:
//
//	v, err := weirjwt.New(ctx, weirjwt.Options{JWKS: "https://id.example/jwks.json", Issuer: "https://id.example", Audience: "api"})
//	...
//	defer v.Close()
//	limit := weirhttp.Limit(limiter, weirhttp.ByJWT("sub", v.Verify))
//
// Signatures are those of RSA (from 2048 bits), ECDSA and Ed25519, and never of a shared secret. A
// token must have an expiry. Valid tokens are remembered by their hash until then.
package weirjwt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Options configure a Verifier. JWKS, Issuer and Audience are required.
type Options struct {
	JWKS     string // a file or an https URL with the keys
	Issuer   string // the iss of every token
	Audience string // is among the aud of every token

	// how often the keys are read again; default: 5 minutes for a URL, 10 seconds for a file. A token
	// with an unknown key causes that at most once a minute, for a file once a second.
	Refresh time.Duration
	Leeway  time.Duration // how far the clocks of issuer and verifier may differ; default: none
	// how long one read of a URL may take, and a caller waits for it at most; default: 2 seconds
	Timeout time.Duration
	// how many valid tokens are remembered; default: 16384. One of 1 KB takes about 3 KB, and one of more
	// than 4 KB is not remembered
	MaxTokens int

	Client *http.Client     // for URLs; default: one that uses the proxy of the environment, and follows https alone
	Now    func() time.Time // default: time.Now
	// is called with the error when the keys could not be read. The previous keys stay valid; with it, a
	// program also starts while the issuer is unavailable. default: none, and New returns that error
	Failed func(error)
}

// ErrInvalid is found by errors.Is in every error about a token.
var ErrInvalid = errors.New("weirjwt: the token is not valid")

// Bounds. A longer token is not looked at.
const (
	maxToken     = 16 << 10
	maxSameKeyID = 4

	defaultRefresh   = 5 * time.Minute
	fileRefresh      = 10 * time.Second
	defaultTimeout   = 2 * time.Second
	defaultMaxTokens = 1 << 14
	maxRemembered    = 4 << 10
)

// algorithms returns the signatures that are accepted.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}
}

// A Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	opts       Options
	algorithms []jose.SignatureAlgorithm
	keys       *keySet

	mu           sync.RWMutex
	recent, past map[[sha256.Size]byte]*verified // the two halves of what is remembered
	set          *keys                           // that the remembered tokens were verified with
}

// verified is a valid token.
type verified struct {
	claims     map[string]any
	texts      map[string]string
	from, ends time.Time
}

// New returns a Verifier. It reads the keys once. If that fails, New returns an error; with
// Options.Failed, it calls that and returns a Verifier, to which all tokens are invalid until a later
// read succeeds.
func New(ctx context.Context, o Options) (*Verifier, error) {
	switch {
	case o.JWKS == "":
		return nil, errors.New("weirjwt: Options.JWKS: name the file or the URL with the issuer's keys")
	case o.Issuer == "":
		return nil, errors.New("weirjwt: Options.Issuer: without it, tokens of every issuer would be valid")
	case o.Audience == "":
		return nil, errors.New("weirjwt: Options.Audience: without it, tokens for other services would be valid")
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxTokens <= 0 {
		o.MaxTokens = defaultMaxTokens
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	keys, err := newKeySet(o)
	if err != nil {
		return nil, err
	}
	v := &Verifier{opts: o, algorithms: algorithms(), keys: keys, recent: map[[sha256.Size]byte]*verified{}}
	if err := keys.first(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// Close ends a read of the keys that is in flight. The present keys stay.
func (v *Verifier) Close() { v.keys.close() }

// Verify checks the signature, exp, nbf, iat, iss and aud of a token, and returns its claims. They
// must not be changed. If the key is unknown, it waits for at most Options.Timeout and the context.
func (v *Verifier) Verify(ctx context.Context, token string) (claims map[string]any, err error) {
	t, err := v.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	return t.claims, nil
}

// Texts is Verify, and returns the claims that are texts, numbers and booleans, as texts. A claim of
// another type is there, and empty. They must not be changed.
func (v *Verifier) Texts(ctx context.Context, token string) (claims map[string]string, err error) {
	t, err := v.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	return t.texts, nil
}

func (v *Verifier) verify(ctx context.Context, token string) (*verified, error) {
	if len(token) > maxToken {
		return nil, invalid("it has %d bytes", len(token))
	}
	now := v.opts.Now()
	v.keys.refreshIfOld(now)
	hash := sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token))) // which keeps and changes nothing
	if t := v.remembered(hash); t != nil {
		return t, t.check(now, v.opts.Leeway)
	}
	parsed, err := jwt.ParseSigned(token, v.algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, invalid("it cannot be parsed, or its algorithm is not accepted")
	}
	if _, has := parsed.Headers[0].ExtraHeaders["crit"]; has {
		return nil, invalid("it has critical extensions")
	}
	set, fits := v.keys.find(ctx, parsed.Headers[0].KeyID)
	if len(fits) == 0 {
		return nil, invalid("its key is unknown")
	}
	t, err := v.withKey(parsed, fits)
	if err != nil {
		return nil, err
	}
	if err := t.check(now, v.opts.Leeway); err != nil {
		return nil, err
	}
	if len(token) <= maxRemembered {
		v.remember(hash, t, set)
	}
	return t, nil
}

// withKey verifies a token with the keys that have its key ID, and all that does not depend on the
// time.
func (v *Verifier) withKey(parsed *jwt.JSONWebToken, fits []jose.JSONWebKey) (*verified, error) {
	algorithm := parsed.Headers[0].Algorithm
	for _, key := range fits[:min(len(fits), maxSameKeyID)] {
		if key.Algorithm != "" && key.Algorithm != algorithm {
			continue
		}
		var standard registered
		var raw map[string]json.RawMessage
		if parsed.Claims(key.Key, &standard, &raw) != nil {
			continue
		}
		switch {
		case standard.Issuer != v.opts.Issuer:
			return nil, invalid("it is of another issuer")
		case !standard.Audience.Contains(v.opts.Audience):
			return nil, invalid("it is for another audience")
		case standard.Expiry == nil:
			return nil, invalid("it has no expiry")
		}
		return newVerified(&standard, raw)
	}
	return nil, invalid("its signature is wrong")
}

// registered are the claims that this package checks. The others may have any type: many issuers have
// a number for sub.
type registered struct {
	Issuer    string           `json:"iss"`
	Audience  jwt.Audience     `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	IssuedAt  *jwt.NumericDate `json:"iat"`
}

func newVerified(standard *registered, raw map[string]json.RawMessage) (*verified, error) {
	t := &verified{claims: map[string]any{}, texts: map[string]string{}, ends: standard.Expiry.Time()}
	if standard.NotBefore != nil {
		t.from = standard.NotBefore.Time()
	}
	if standard.IssuedAt != nil && standard.IssuedAt.Time().After(t.from) {
		t.from = standard.IssuedAt.Time()
	}
	for name, text := range raw {
		if hasNameTwice(text) {
			return nil, invalid("a claim has a name twice")
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		var value any
		if d.Decode(&value) != nil {
			return nil, invalid("a claim is not JSON")
		}
		t.claims[name] = value
		switch value := value.(type) {
		case string:
			t.texts[name] = value
		case json.Number:
			t.texts[name] = value.String()
		case bool:
			t.texts[name] = strconv.FormatBool(value)
		default:
			t.texts[name] = ""
		}
	}
	return t, nil
}

// hasNameTwice reports whether an object within a claim has a name twice: other readers may take the
// other value. Names of the claims themselves are checked by go-jose.
func hasNameTwice(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	var open []map[string]bool // the names of the objects that are open; nil for an array
	atName := false
	for {
		token, err := d.Token()
		if err != nil {
			return false // the end, or not JSON, which decoding finds
		}
		innermost := len(open) - 1
		switch delim, _ := token.(json.Delim); {
		case delim == '{':
			open, atName = append(open, map[string]bool{}), true
			continue
		case delim == '[':
			open, atName = append(open, nil), false
			continue
		case delim != 0: // } or ]
			open = open[:innermost]
		case atName:
			name, _ := token.(string)
			if open[innermost][name] {
				return true
			}
			open[innermost][name], atName = true, false
			continue
		}
		atName = len(open) > 0 && open[len(open)-1] != nil // a value has ended
	}
}

// check checks what depends on the time.
func (t *verified) check(now time.Time, leeway time.Duration) error {
	switch {
	case !now.Add(-leeway).Before(t.ends):
		return invalid("it has expired")
	case now.Add(leeway).Before(t.from):
		return invalid("it is not valid yet")
	}
	return nil
}

// remembered returns a token that was verified with the present keys; nil if there is none.
func (v *Verifier) remembered(hash [sha256.Size]byte) *verified {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.set != v.keys.current.Load() {
		return nil
	}
	if t := v.recent[hash]; t != nil {
		return t
	}
	return v.past[hash]
}

// remember keeps a valid token. Those that were kept with other keys are dropped: their key may have
// been withdrawn. Beyond the bound, the older half is dropped.
func (v *Verifier) remember(hash [sha256.Size]byte, t *verified, set *keys) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set != set {
		v.set, v.past = set, nil
		clear(v.recent)
	}
	if len(v.recent) >= max(v.opts.MaxTokens/2, 1) {
		v.past, v.recent = v.recent, make(map[[sha256.Size]byte]*verified, len(v.recent))
	}
	v.recent[hash] = t
}

// Remembered returns how many tokens are remembered.
func (v *Verifier) Remembered() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := maps.Clone(v.recent)
	maps.Copy(all, v.past)
	return len(all)
}

// invalid returns an error about a token. It contains nothing of the token.
func invalid(why string, args ...any) error {
	return fmt.Errorf("%w: "+why, append([]any{ErrInvalid}, args...)...)
}
