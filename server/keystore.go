package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/stores"
	"github.com/weirflow/weir/server/stores/product"
)

// A KeyStore is the API keys of a policy that are in a store, for the command that changes them.
type KeyStore struct {
	store   product.Store
	records product.RecordKeeper
	secret  []byte
}

// connectWithin is how long OpenKeyStore waits for the store.
const connectWithin = 5 * time.Second

// OpenKeyStore connects to the store that has the API keys of a policy.
func OpenKeyStore(ctx context.Context, file *policyfile.File) (*KeyStore, error) {
	plans := &file.Policy.Plans
	for _, def := range file.Policy.Stores {
		if def.Name != plans.APIKeys.Store {
			continue
		}
		secret, err := policyfile.ReadHashSecret(file.Beside(plans.HashSecretFile))
		if err != nil {
			return nil, err
		}
		s, err := stores.Open(def, nil)
		if err != nil {
			return nil, fmt.Errorf("stores.%s: %w", def.Name, err)
		}
		records, ok := s.(product.RecordKeeper)
		if !ok {
			err = fmt.Errorf("stores.%s: it keeps no API keys", def.Name)
		} else {
			ready, cancel := context.WithTimeout(ctx, connectWithin)
			err = s.Ready(ready)
			cancel()
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return &KeyStore{s, records, secret}, nil
	}
	return nil, fmt.Errorf("%s keeps its API keys in no store: write plans: { api_keys: { store: NAME } }, or leave --config out and name --secret-file", file.Path)
}

// Close ends the connection.
func (k *KeyStore) Close() error { return k.store.Close() }

// Add makes a key valid, for a while, or without an end if expires is 0. An entry of the same key is
// replaced.
func (k *KeyStore) Add(ctx context.Context, key string, c policy.Customer, expires time.Duration) (policyfile.KeyHash, error) {
	h := policyfile.HashAPIKey(k.secret, key)
	text, err := policyfile.FormatKeyRecord(c)
	if err != nil {
		return h, err
	}
	return h, k.records.SetRecord(ctx, h.String(), text, expires)
}

// Remove makes the key with a hash invalid, and reports whether it was there.
func (k *KeyStore) Remove(ctx context.Context, h policyfile.KeyHash) (bool, error) {
	return k.records.RemoveRecord(ctx, h.String())
}

// List calls each with the hashes of all keys, in no order, and with their customers; or with the
// error of an entry that is not valid.
func (k *KeyStore) List(ctx context.Context, each func(hash string, c policy.Customer, err error) error) error {
	seen := map[string]bool{} // a store may name a key twice
	return k.records.Records(ctx, "", func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		text, found, err := k.records.Record(ctx, name)
		if !found { // it was removed meanwhile
			return err
		}
		var c policy.Customer
		if err == nil {
			c, err = policyfile.ParseKeyRecord(text)
		}
		return each(name, c, err)
	})
}
