package credential_test

import (
	"crypto/sha256"
	"testing"

	"github.com/weirflow/weir/server/credential"
)

// TestCheck: hashes of empty texts and of samples are refused.
func TestCheck(t *testing.T) {
	for text, good := range map[string]bool{"": false, "\n": false, "test": false, "password\n": false, "$TOKEN": false, " ": true, "4f1d0c9a": true} {
		if err := credential.Check(sha256.Sum256([]byte(text))); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
