package policyfile

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
)

// Bounds of the files with API keys. A file has at most as many bytes as a policy file, which is
// about 8000 keys.
const (
	maxKeyFiles = 1000
	maxKeys     = 200_000
	maxCustomer = 200 // bytes of a customer's name
	minSecret   = 32  // bytes of the secret for hashes
	maxSecret   = 4096
)

// A KeyHash is the hash of an API key. Without the secret of the installation, it reveals nothing about
// the key.
type KeyHash [sha256.Size]byte

// HashAPIKey returns the hash under which a key is kept: HMAC-SHA256 with the installation's secret.
func HashAPIKey(secret []byte, key string) (h KeyHash) {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(key))
	m.Sum(h[:0])
	return h
}

// APIKeys are the customers by the hashes of their API keys. They do not change, and are safe for
// concurrent use.
type APIKeys struct {
	secret []byte
	byHash map[KeyHash]apiKey
	planOf map[string]string // the plan of each customer: that of its first key
	plans  map[string]bool   // of all keys
	read   [sha256.Size]byte // a hash of all files
}

// An apiKey is an entry with its position.
type apiKey struct {
	customer  policy.Customer
	file      string
	line, col int
}

// Find returns the customer of a key. It looks the key up by its keyed hash: the time that this takes
// depends on bits of the hash, which nobody can choose who does not know the secret.
func (k *APIKeys) Find(key string) (policy.Customer, bool) {
	if k == nil {
		return policy.Customer{}, false
	}
	found, ok := k.byHash[HashAPIKey(k.secret, key)]
	return found.customer, ok
}

// APIKey implements policy.Customers.
func (k *APIKeys) APIKey(_ context.Context, key string) (policy.Customer, bool, error) {
	c, valid := k.Find(key)
	return c, valid, nil
}

// Token implements policy.Customers: no token is valid without the keys of its issuer.
func (k *APIKeys) Token(context.Context, string) (policy.Claims, bool) { return nil, false }

// PlanOf returns the plan of a customer; that of its first key if they differ, and nothing without one.
func (k *APIKeys) PlanOf(customer string) string {
	if k == nil {
		return ""
	}
	return k.planOf[customer]
}

// HasPlan reports whether a key has a plan.
func (k *APIKeys) HasPlan(plan string) bool { return k != nil && k.plans[plan] }

// Len returns how many keys there are.
func (k *APIKeys) Len() int {
	if k == nil {
		return 0
	}
	return len(k.byHash)
}

// Same reports whether both were read from the same contents of the same files.
func (k *APIKeys) Same(other *APIKeys) bool {
	return k == other || k != nil && other != nil && k.read == other.read
}

// LoadAPIKeys reads a file, or all files of a directory whose names end in .yaml, .yml or .json and
// do not begin with a dot. Of a file that is not valid, the problems say where. A file that cannot be
// read is an error.
func LoadAPIKeys(path string, secret []byte) (*APIKeys, []Problem, error) {
	return ReloadAPIKeys(path, secret, nil)
}

// ReloadAPIKeys is LoadAPIKeys, and returns nil if nothing differs from what was read before. It
// refuses a directory that has lost all its files: they may be on their way.
func ReloadAPIKeys(path string, secret []byte, before *APIKeys) (*APIKeys, []Problem, error) {
	files, err := keyFiles(path)
	if err != nil {
		return nil, nil, err
	}
	k := &APIKeys{secret: secret, byHash: map[KeyHash]apiKey{}, planOf: map[string]string{}, plans: map[string]bool{}}
	sum := sha256.New()
	sum.Write(secret)
	contents := make([][]byte, len(files))
	for i, name := range files {
		if contents[i], err = readKeyFile(name); err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(sum, "%s\x00%d\x00", name, len(contents[i]))
		sum.Write(contents[i])
	}
	if sum.Sum(k.read[:0]); before != nil && before.read == k.read {
		return nil, nil, nil
	}
	if len(files) == 0 && before.Len() > 0 {
		return nil, nil, fmt.Errorf("%s has no files with keys any more: %s", path, noKeys)
	}
	var problems []Problem
	for i, name := range files {
		problems = append(problems, k.add(name, contents[i])...)
		if len(k.byHash) > maxKeys {
			return nil, nil, fmt.Errorf("%s has more than %d keys", path, maxKeys)
		}
	}
	return k, problems, nil
}

// keyFiles returns the files with keys at a path, in order.
func keyFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, brief(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, brief(path, err)
	}
	var files []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			continue
		}
		if files = append(files, filepath.Join(path, e.Name())); len(files) > maxKeyFiles {
			return nil, fmt.Errorf("%s has more than %d files", path, maxKeyFiles)
		}
	}
	return files, nil
}

func brief(path string, err error) error {
	if stat, ok := errors.AsType[*os.PathError](err); ok {
		err = stat.Err
	}
	return fmt.Errorf("%s cannot be read: %w", path, err)
}

func readKeyFile(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, brief(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, brief(path, err)
	}
	return data, nil
}

// add adds the keys of a file.
func (k *APIKeys) add(path string, data []byte) (all []Problem) {
	wrong := func(n *node, msg, fix string) {
		all = append(all, Problem{File: path, Line: n.line, Col: n.col, Message: msg, Fix: fix})
	}
	root, err := parseAny(data)
	if err != nil {
		var m *mistake
		if !errors.As(err, &m) {
			return []Problem{{File: path, Line: 1, Col: 1, Message: err.Error()}}
		}
		if m.msg == emptyFile { // another process may have emptied it to write it anew
			m.fix = noKeys
		}
		return []Problem{{File: path, Line: m.line, Col: m.col, Message: m.msg, Fix: m.fix}}
	}
	if root.shape != list {
		wrong(root, "the file is not a list of keys", keyLine+"; or [] for none")
		return all
	}
	for _, n := range root.items {
		e, h, msg, fix, at := readKey(n)
		if msg != "" {
			wrong(at, msg, fix)
			continue
		}
		if first, twice := k.byHash[h]; twice {
			wrong(n, fmt.Sprintf("this key is there twice, first in %s, line %d", first.file, first.line), "take one of them out")
			continue
		}
		if at := n.get("plan"); at != nil {
			n = at
		}
		e.file, e.line, e.col = path, n.line, n.col
		k.byHash[h] = e
		if _, known := k.planOf[e.customer.Name]; !known {
			k.planOf[e.customer.Name] = e.customer.Plan
		}
		k.plans[e.customer.Plan] = true
	}
	return all
}

const noKeys = "write [] in a file that is to have no keys"

const keyLine = "write entries like - { customer: acme, plan: pro, hmac_sha256: ... }, as weir key prints them"

// readKey reads an entry. Messages have nothing of what stands in place of a hash: it may be a key.
func readKey(n *node) (e apiKey, h KeyHash, msg, fix string, at *node) {
	if n.shape != mapping {
		return e, h, "this is not an entry for a key", keyLine, n
	}
	known := []string{"customer", "plan", "hmac_sha256"}
	for _, f := range slices.Concat(n.fields, n.empty) {
		if !slices.Contains(known, f.name) {
			fix := "known: " + strings.Join(known, ", ")
			if near := nearest.To(f.name, known); near != "" {
				fix = fmt.Sprintf("did you mean %q?", near)
			}
			return e, h, fmt.Sprintf("an entry has no %q", f.name), fix, &node{line: f.line, col: f.col}
		}
	}
	customer, plan, hash := n.get("customer"), n.get("plan"), n.get("hmac_sha256")
	e.customer = policy.Customer{Name: text(customer), Plan: text(plan)}
	switch {
	case e.customer.Name == "":
		return e, h, "the entry has no customer", keyLine, n
	case len(e.customer.Name) > maxCustomer:
		return e, h, fmt.Sprintf("the name of the customer is longer than %d bytes", maxCustomer), "", customer
	case plan != nil && e.customer.Plan == "":
		return e, h, "the plan is not a name", "write it like pro, or take it out for the default", plan
	case hash == nil:
		return e, h, "the entry has no hmac_sha256", keyLine, n
	}
	sum, err := hex.DecodeString(text(hash))
	if err != nil || len(sum) != len(h) {
		return e, h, "hmac_sha256 is not a hash: it is 64 hexadecimal digits, and never the key itself", "weir key --hash prints it for a key that exists", hash
	}
	return e, KeyHash(sum), "", "", nil
}

// unknownPlans warns of plans that no limit has parameters for.
func (k *APIKeys) unknownPlans(known []string) (all []Problem) {
	warned := map[string]apiKey{}
	for _, e := range k.byHash {
		plan := e.customer.Plan
		if first, ok := warned[plan]; plan != "" && !slices.Contains(known, plan) && (!ok || before(e, first)) {
			warned[plan] = e
		}
	}
	for _, plan := range slices.Sorted(maps.Keys(warned)) {
		e := warned[plan]
		all = append(all, Problem{File: e.file, Line: e.line, Col: e.col, Warning: true,
			Message: fmt.Sprintf("no limit has parameters for the plan %q: its customers have those of the limits themselves", plan),
			Fix:     suggest(plan, slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(known))), func(p string) bool { return p == "" }))})
	}
	return all
}

// severalPlans warns of customers whose keys have different plans: what they have used is converted
// with each change of the key, and in a store each plan has a state of its own.
func (k *APIKeys) severalPlans() (all []Problem) {
	first, other := map[string]apiKey{}, map[string]apiKey{}
	entries := slices.SortedFunc(maps.Values(k.byHash), func(a, b apiKey) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
	})
	for _, e := range entries {
		name := e.customer.Name
		if f, seen := first[name]; !seen {
			first[name] = e
		} else if _, warned := other[name]; !warned && f.customer.Plan != e.customer.Plan {
			other[name] = e
			all = append(all, Problem{File: e.file, Line: e.line, Col: e.col, Warning: true,
				Message: fmt.Sprintf("the keys of the customer %q have different plans: another one is in %s, line %d", name, f.file, f.line),
				Fix:     "give all keys of a customer one plan"})
		}
	}
	return all
}

func before(a, b apiKey) bool { return a.file < b.file || a.file == b.file && a.line < b.line }

// hashSecret reads the secret that API keys are hashed with.
func (f *File) hashSecret() ([]byte, error) {
	name := f.Policy.Plans.HashSecretFile
	return ReadHashSecret(f.Beside(name))
}

// ReadHashSecret reads a secret: for the hashes of API keys, or the signatures of a webhook.
func ReadHashSecret(path string) ([]byte, error) {
	file, err := regular.Open(path)
	if err != nil {
		return nil, brief(path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return nil, brief(path, err)
	}
	secret := strings.TrimSpace(string(data))
	if len(secret) < minSecret || len(data) > maxSecret {
		return nil, fmt.Errorf("%s has %d bytes: a secret has %d to %d", path, len(secret), minSecret, maxSecret)
	}
	return []byte(secret), nil
}
