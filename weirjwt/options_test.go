package weirjwt_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/weirflow/weir/weirjwt"
)

// TestOptionsThatCannotWork are errors of New.
func TestOptionsThatCannotWork(t *testing.T) {
	for _, o := range []weirjwt.Options{{}, {JWKS: "x"}, {JWKS: "x", Issuer: "i"}, {JWKS: "ftp://h/x", Issuer: "i", Audience: "a"}, {JWKS: "https://", Issuer: "i", Audience: "a"}, {JWKS: "http://127.0.0.1:1/x", Issuer: "i", Audience: "a", Failed: func(error) {}}} {
		if v, err := weirjwt.New(t.Context(), o); err == nil {
			v.Close()
			t.Errorf("%+v", o)
		}
	}
}

// TestMissingFile: New reports that there are no keys, itself or by Failed. It returned a Verifier
// without keys, and nothing said why all tokens were invalid.
func TestMissingFile(t *testing.T) {
	o := weirjwt.Options{JWKS: filepath.Join(t.TempDir(), "jwks.json"), Issuer: "i", Audience: "a"}
	if v, err := weirjwt.New(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", v, err)
	}
	failed := make(chan error, 1)
	o.Failed = func(err error) { failed <- err }
	v, err := weirjwt.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := <-failed; !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
