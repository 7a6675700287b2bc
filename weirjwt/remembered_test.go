package weirjwt_test

import (
	"crypto"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirflow/weir/weirjwt"
)

func BenchmarkRemembered(b *testing.B) {
	t := &testing.T{}
	i := &issuer{t: t, keys: map[string]crypto.Signer{}}
	i.add("rsa")
	path := filepath.Join(b.TempDir(), "jwks.json")
	if err := os.WriteFile(path, i.jwks(), 0o600); err != nil {
		b.Fatal(err)
	}
	v, err := weirjwt.New(b.Context(), weirjwt.Options{JWKS: path, Issuer: "https://id.example", Audience: "api"})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	token := i.sign("rsa", rs, claims(time.Now()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Texts(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}
