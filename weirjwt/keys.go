package weirjwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejson "github.com/go-jose/go-jose/v4/json"
)

// Bounds of a JWKS.
const (
	maxJWKS = 1 << 20 // bytes
	maxKeys = 100
	minRSA  = 2048 // bits

	unknownEvery     = time.Minute // at most so often, an unknown key causes a read of a URL
	unknownEveryFile = time.Second
	retryEvery       = time.Second // without any keys
	maxRedirects     = 3
)

// keys is a JWKS. It does not change.
type keys struct {
	byID map[string][]jose.JSONWebKey
	all  []jose.JSONWebKey
	text string
}

// A keySet holds the present keys, and reads them again.
type keySet struct {
	opts    Options
	url     bool
	every   time.Duration // between two reads
	unknown time.Duration // the least between two reads because of unknown keys
	life    context.Context
	end     context.CancelFunc
	reads   sync.WaitGroup
	current atomic.Pointer[keys] // nil before the first success
	next    atomic.Int64         // when the keys are read again, in Unix nanoseconds

	mu     sync.Mutex
	flight chan struct{} // closed at the end of the read in flight; nil for none
	began  time.Time     // of the last read
	closed bool
	failed error // of the last read; nil if it succeeded
}

func newKeySet(o Options) (*keySet, error) {
	s := &keySet{opts: o, every: o.Refresh, unknown: unknownEveryFile}
	if strings.Contains(o.JWKS, "://") {
		u, err := url.Parse(o.JWKS)
		switch {
		case err == nil && u.Scheme == "http":
			return nil, errors.New("weirjwt: Options.JWKS must be https: over http, the keys can be replaced on the way")
		case err != nil || u.Scheme != "https" || u.Host == "":
			return nil, errors.New("weirjwt: Options.JWKS is neither a file nor a URL like https://id.example/jwks.json")
		}
		if s.url, s.unknown = true, unknownEvery; s.opts.Client == nil {
			s.opts.Client = newClient()
		}
	}
	switch {
	case s.every > 0:
	case s.url:
		s.every = defaultRefresh
	default:
		s.every = fileRefresh
	}
	s.unknown = min(s.unknown, s.every)
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// newClient returns a client that follows redirects only to https.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects || r.URL.Scheme != "https" {
				return errors.New("the redirect is not followed")
			}
			return nil
		},
	}
}

// find returns the keys with an ID. If there is none, it reads the keys again, unless that was done
// shortly before, and waits for it. A token without an ID fits only if there is a single key.
func (s *keySet) find(ctx context.Context, id string) (*keys, []jose.JSONWebKey) {
	now := s.current.Load()
	if fits := now.find(id); len(fits) > 0 {
		return now, fits
	}
	s.refreshUnknown(ctx)
	now = s.current.Load()
	return now, now.find(id)
}

func (k *keys) find(id string) []jose.JSONWebKey {
	switch {
	case k == nil:
		return nil
	case id != "":
		return k.byID[id]
	case len(k.all) == 1:
		return k.all
	}
	return nil
}

// refreshIfOld starts a read in the background if the keys are old.
func (s *keySet) refreshIfOld(now time.Time) {
	if now.UnixNano() >= s.next.Load() {
		s.start(0)
	}
}

// refreshUnknown waits for a read because of an unknown key.
func (s *keySet) refreshUnknown(ctx context.Context) {
	least := s.unknown
	if s.current.Load() == nil {
		least = min(least, retryEvery)
	}
	s.wait(ctx, s.start(least))
}

// refresh reads the keys, and waits for it.
func (s *keySet) refresh(ctx context.Context) { s.wait(ctx, s.start(0)) }

// first reads the keys for the first time. Without Options.Failed, nothing else would report why there
// are none.
func (s *keySet) first(ctx context.Context) error {
	s.refresh(ctx)
	if s.opts.Failed != nil || s.current.Load() != nil {
		return nil
	}
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("weirjwt: Options.JWKS: the keys of the issuer were not read (with Options.Failed, New returns a Verifier all the same, which tries again): %w", s.failed)
}

func (s *keySet) wait(ctx context.Context, flight <-chan struct{}) {
	if flight == nil {
		return
	}
	timer := time.NewTimer(s.opts.Timeout)
	defer timer.Stop()
	select {
	case <-flight:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// start starts a read, unless one is in flight, or began less than some time ago. It returns what
// ends with the read in flight; nil for none.
func (s *keySet) start(least time.Duration) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	if s.flight != nil || s.closed || !s.began.IsZero() && now.Sub(s.began) < least {
		return s.flight
	}
	flight := make(chan struct{})
	s.flight, s.began = flight, now
	s.next.Store(now.Add(s.every).UnixNano())
	s.reads.Go(func() {
		next, err := s.read()
		switch now := s.current.Load(); {
		case err != nil:
			s.next.Store(s.opts.Now().Add(min(s.every, unknownEvery)).UnixNano())
		case now == nil || now.text != next.text:
			s.current.Store(next)
		}
		s.mu.Lock()
		s.flight, s.failed = nil, err
		s.mu.Unlock()
		close(flight)
		if err != nil && s.life.Err() == nil && s.opts.Failed != nil {
			s.opts.Failed(fmt.Errorf("weirjwt: the keys of the issuer were not read: %w", err))
		}
	})
	return flight
}

// close ends the read in flight.
func (s *keySet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.reads.Wait()
}

// read reads the keys once.
func (s *keySet) read() (*keys, error) {
	ctx, cancel := context.WithTimeout(s.life, s.opts.Timeout)
	defer cancel()
	body, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxJWKS+1))
	if err != nil {
		return nil, err
	}
	return parseKeys(data)
}

func (s *keySet) open(ctx context.Context) (io.ReadCloser, error) {
	if !s.url {
		info, err := os.Stat(s.opts.JWKS)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", s.opts.JWKS)
		}
		if err != nil {
			return nil, err
		}
		return os.Open(s.opts.JWKS)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.opts.JWKS, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := s.opts.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the response has status %d", resp.StatusCode)
	}
	return resp.Body, nil
}

// CheckKeys returns why a JWKS cannot be used; nil if it can.
func CheckKeys(data []byte) error {
	_, err := parseKeys(data)
	return err
}

// parseKeys parses a JWKS. Keys that verify no signatures are left out.
func parseKeys(data []byte) (*keys, error) {
	if len(data) > maxJWKS {
		return nil, fmt.Errorf("it has more than %d bytes", maxJWKS)
	}
	var set struct {
		Keys []josejson.RawMessage `json:"keys"`
	}
	if err := josejson.Unmarshal(data, &set); err != nil {
		return nil, errors.New("it is not a JWKS: {\"keys\": [...]}")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has more than %d keys", maxKeys)
	}
	k := &keys{byID: map[string][]jose.JSONWebKey{}, text: string(data)}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || !verifies(&key) {
			continue // of a kind that is not known here, or for another purpose
		}
		key = key.Public()
		k.all = append(k.all, key)
		k.byID[key.KeyID] = append(k.byID[key.KeyID], key)
	}
	if len(k.all) == 0 {
		return nil, errors.New("it has no public key for signatures by RSA (from 2048 bits), ECDSA or Ed25519")
	}
	return k, nil
}

// verifies reports whether a key verifies signatures. A shared secret does not: a server
// that verifies with it could sign.
func verifies(key *jose.JSONWebKey) bool {
	if !key.Valid() || key.Use != "" && key.Use != "sig" {
		return false
	}
	switch k := key.Public().Key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= minRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
