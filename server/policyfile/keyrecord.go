package policyfile

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weirflow/weir/policy"
)

// A keyRecord is the entry of an API key in a store, as JSON, under the hash of the key.
type keyRecord struct {
	Customer string `json:"customer"`
	Plan     string `json:"plan,omitempty"`
}

// maxKeyRecord bounds the entry of a key in a store, in bytes.
const maxKeyRecord = 4096

// String returns the hash as hexadecimal digits: the name of the key's entry in a store.
func (h KeyHash) String() string { return hex.EncodeToString(h[:]) }

// ParseKeyHash reads a hash that String has written.
func ParseKeyHash(text string) (KeyHash, error) {
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != len(KeyHash{}) {
		return KeyHash{}, errors.New("a hash of a key has 64 hexadecimal digits")
	}
	return KeyHash(sum), nil
}

// FormatKeyRecord returns the entry of an API key in a store.
func FormatKeyRecord(c policy.Customer) (string, error) {
	if err := checkCustomer(c); err != nil {
		return "", err
	}
	text, err := json.Marshal(keyRecord{c.Name, c.Plan})
	return string(text), err
}

// ParseKeyRecord reads the entry of an API key in a store. The error has nothing of what the entry
// holds.
func ParseKeyRecord(text string) (policy.Customer, error) {
	var r keyRecord
	if len(text) > maxKeyRecord || json.Unmarshal([]byte(text), &r) != nil {
		return policy.Customer{}, errors.New(`the entry of an API key is no JSON like {"customer":"acme","plan":"pro"}`)
	}
	c := policy.Customer{Name: r.Customer, Plan: r.Plan}
	return c, checkCustomer(c)
}

func checkCustomer(c policy.Customer) error {
	switch {
	case c.Name == "":
		return errors.New("the entry of an API key has no customer")
	case len(c.Name) > maxCustomer:
		return fmt.Errorf("the name of a customer is longer than %d bytes", maxCustomer)
	case len(c.Plan) > maxCustomer:
		return fmt.Errorf("the name of a plan is longer than %d bytes", maxCustomer)
	}
	return nil
}
