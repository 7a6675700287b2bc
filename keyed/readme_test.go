package keyed_test

import (
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// The program in the README: three login attempts per hour for each user.
func Example() {
	attempts, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(3), Burst: 3}, keyed.Options{MaxKeys: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		if d := attempts.Take("alice", 1); d.Allowed {
			fmt.Println("allowed,", d.Remaining, "left")
		} else {
			fmt.Println("429 Too Many Requests, retry in", d.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// allowed, 2 left
	// allowed, 1 left
	// allowed, 0 left
	// 429 Too Many Requests, retry in 20m0s
}

// TestReadmeShowsTheExample: the Go code in the README is the body of Example, so it compiles and
// prints what the README says.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(readme), "```go\n")
	code, _, closed := strings.Cut(code, "```\n")
	_, body, found := strings.Cut(string(source), "func Example() {\n")
	body, _, ends := strings.Cut(body, "\n}\n")
	if !ok || !closed || !found || !ends {
		t.Fatal("the README has no Go code, or this file no Example")
	}
	var indented strings.Builder
	for line := range strings.Lines(code) {
		indented.WriteString("\t" + line)
	}
	if indented.String() != body+"\n" {
		t.Errorf("the README shows\n%s\nand Example is\n%s", indented.String(), body)
	}
}
