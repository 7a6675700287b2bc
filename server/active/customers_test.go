package active

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

const hashSecret = "an installation's secret of 32 bytes"

// keyed is a policy with two API keys, and what the server logs of them.
type keyed struct {
	*customers
	t   *testing.T
	dir string
	log strings.Builder
}

func newKeyed(t *testing.T) *keyed {
	t.Helper()
	k := &keyed{t: t, dir: t.TempDir()}
	k.write("s", hashSecret)
	k.write("keys.yaml", keyLines("a", "b"))
	k.write("p.yaml", `
plans: { from: api_key, api_keys: keys.yaml, hash_secret_file: s }
limits: { l: { key: customer, token_bucket: { rate: 1/h, burst: 1 } } }
routes: [{ match: /, limits: [l] }]
`)
	k.reload()
	return k
}

func (k *keyed) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// reload is what an update of the policy does.
func (k *keyed) reload() {
	k.t.Helper()
	file, err := policyfile.Load(filepath.Join(k.dir, "p.yaml"))
	if err != nil {
		k.t.Fatal(err)
	}
	if k.customers, err = newCustomers(context.Background(), file, nil, slog.New(slog.NewTextHandler(&k.log, nil)), new(customerCounts), k.customers); err != nil {
		k.t.Fatal(err)
	}
}

// knows checks which keys are valid.
func (k *keyed) knows(what, want string) {
	k.t.Helper()
	got := ""
	for _, key := range []string{"a", "b", "c"} {
		if _, ok, _ := k.APIKey(context.Background(), key); ok {
			got += key
		}
	}
	if got != want {
		k.t.Errorf("%s: the keys %q are valid, want %q", what, got, want)
	}
}

func keyLines(keys ...string) (text string) {
	for _, key := range keys {
		h := policyfile.HashAPIKey([]byte(hashSecret), key)
		text += fmt.Sprintf("- { customer: %s, hmac_sha256: %s }\n", key, hex.EncodeToString(h[:]))
	}
	return text
}

// TestKeysWhileTheyAreWritten: a file that is read while another process writes it takes no customer
// out: neither while it is empty, nor while it ends at the end of a line.
func TestKeysWhileTheyAreWritten(t *testing.T) {
	k := newKeyed(t)
	k.write("keys.yaml", "")
	k.tick()
	k.knows("the file is emptied", "ab")
	k.write("keys.yaml", keyLines("a"))
	k.tick()
	k.knows("the file has its first line", "ab")
	k.reload()
	k.knows("the policy is reloaded meanwhile", "ab")
	k.write("keys.yaml", keyLines("a", "b", "c"))
	k.tick()
	k.knows("the file is written, and was read once", "ab")
	k.tick()
	k.knows("the file is written", "abc")
	if k.log.Len() > 0 && strings.Contains(k.log.String(), "ERROR") {
		t.Errorf("what another process writes is no error:\n%s", k.log.String())
	}
}

// TestKeysOfAnEmptyFile: a file that stays empty keeps the keys of before, and one that has [] takes
// all of them out.
func TestKeysOfAnEmptyFile(t *testing.T) {
	k := newKeyed(t)
	k.write("keys.yaml", "")
	for range 5 {
		k.tick()
	}
	k.knows("the file stays empty", "ab")
	if n := strings.Count(k.log.String(), "the file is empty"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, k.log.String())
	}
	k.write("keys.yaml", "[]\n")
	k.tick()
	k.tick()
	k.knows("there are to be none", "")
}
