package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// tags makes the ETags of policies. They are keyed, so that nobody can find out what is in a policy
// by guessing it.
type tags struct{ key [32]byte }

func newTags() *tags {
	t := new(tags)
	_, _ = rand.Read(t.key[:]) // it never fails
	return t
}

func (t *tags) of(data []byte) string {
	m := hmac.New(sha256.New, t.key[:])
	m.Write(data)
	return `"` + hex.EncodeToString(m.Sum(nil)[:16]) + `"`
}
