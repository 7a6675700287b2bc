package weirjwt_test

import (
	"context"
	"log"

	"github.com/weirflow/weir/weirjwt"
)

// The code of docs/go.md is that of this example: see TestGoPageShowsTheExamples in weirhttp. It needs
// an issuer, and is only compiled.

func ExampleNew() {
	ctx := context.Background()
	tokens, err := weirjwt.New(ctx, weirjwt.Options{JWKS: "https://id.example/jwks.json", Issuer: "https://id.example", Audience: "api"})
	if err != nil {
		log.Fatal(err)
	}
	defer tokens.Close()
	// weirhttp.ByJWT("sub", tokens.Verify) is the key of a limit.
}
