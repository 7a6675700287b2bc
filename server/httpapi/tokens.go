package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/credential"
)

// tokensFix is how a file with tokens is written.
const tokensFix = "write a list: - { name: checkout, sha256: HASH, scopes: [take, peek] }, where HASH is of: printf %s TOKEN | sha256sum"

// scopes are what a token may be for.
var scopes = []string{"take", "peek", "reserve", "usage", "hook", "charge", "enter"}

// Bounds of a file with tokens.
const (
	maxTokens     = 1000
	maxTokensFile = 1 << 20
)

// tokens are the tokens of a file. They do not change.
type tokens struct {
	byHash map[[sha256.Size]byte]*token
	sum    [sha256.Size]byte // of the file
	failed string            // why the file could not be read again
}

// token is what a token allows.
type token struct {
	Name   string   `yaml:"name"`
	SHA256 string   `yaml:"sha256"`
	Scopes []string `yaml:"scopes"`
	Limits []string `yaml:"limits"` // default: all

	hash [sha256.Size]byte
}

// readTokens reads a file with tokens.
func readTokens(path string, p *policy.Policy) (*tokens, error) {
	data, err := regular.Read(path, maxTokensFile)
	if err != nil {
		return nil, err
	}
	var list []*token
	if err := yaml.UnmarshalWithOptions(data, &list, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s is not a list of tokens: %s", path, strings.SplitN(err.Error(), "\n", 2)[0])
	}
	t := &tokens{byHash: map[[sha256.Size]byte]*token{}, sum: sha256.Sum256(data)}
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("%s has no token", path)
	case len(list) > maxTokens:
		return nil, fmt.Errorf("%s has %d tokens: at most %d are possible", path, len(list), maxTokens)
	}
	named := map[string]bool{}
	for i, k := range list {
		if k == nil {
			return nil, fmt.Errorf("%s: entry %d is empty", path, i+1)
		}
		if err := k.check(p); err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", path, i+1, err)
		}
		if named[k.Name] || t.byHash[k.hash] != nil {
			return nil, fmt.Errorf("%s: entry %d has the name or the hash of another", path, i+1)
		}
		named[k.Name], t.byHash[k.hash] = true, k
	}
	return t, nil
}

func (k *token) check(p *policy.Policy) error {
	sum, err := hex.DecodeString(k.SHA256)
	switch {
	case k.Name == "" || len(k.Name) > 64:
		return errors.New("name: it is empty, or longer than 64 bytes")
	case err != nil || len(sum) != len(k.hash):
		return errors.New("sha256: it is not a SHA-256 in hexadecimal")
	case len(k.Scopes) == 0:
		return fmt.Errorf("scopes: there is none; known: %s", strings.Join(scopes, ", "))
	}
	copy(k.hash[:], sum)
	if err := credential.Check(k.hash); err != nil {
		return fmt.Errorf("sha256: %w", err)
	}
	for _, s := range k.Scopes {
		if !slices.Contains(scopes, s) {
			return fmt.Errorf("scopes: there is no scope %.40q; known: %s", s, strings.Join(scopes, ", "))
		}
	}
	for _, l := range k.Limits {
		if !slices.ContainsFunc(p.Limits, func(o policy.Limit) bool { return o.Name == l }) {
			return fmt.Errorf("limits: the policy has no limit %.80q", l)
		}
	}
	return nil
}

// find returns the token of a request; nil for none that is valid. The token is looked up by its hash,
// which nobody can choose bit by bit.
func (t *tokens) find(r *http.Request) *token {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	text = strings.TrimSpace(text)
	if len(r.Header["Authorization"]) != 1 || !strings.EqualFold(scheme, "Bearer") || text == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(text))
	k := t.byHash[sum]
	if k == nil || subtle.ConstantTimeCompare(k.hash[:], sum[:]) != 1 {
		return nil
	}
	return k
}

// may reports whether a token has a scope. Without tokens, everybody has all of them.
func (k *token) may(scope string) bool { return k == nil || slices.Contains(k.Scopes, scope) }

// reaches reports whether a token is for a limit.
func (k *token) reaches(limit string) bool {
	return k == nil || len(k.Limits) == 0 || slices.Contains(k.Limits, limit)
}
