package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestTwice: a field that is there twice is found at any depth and in any spelling, and nothing else is.
func TestTwice(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}],"d":"a","e":["a","a"]}`: "",
		`{"a":1,"b":[],"a":2}`:                    "a",
		`{"a":1,"A":2}`:                           "A",
		`{"a":1,"\u0061":2}`:                      "a",
		`{"limits":1,"limit\u017f":2}`:            "limit\u017f", // package json takes a long s as an s
		`{"x":{"y":[{"k":"}","k":1}]}}`:           "k",
		`{"x":"\\","y":"\"x\":","z":[",\"x\":"]}`: "",
		`{"x":[1,"x"],"y":"x"}`:                   "",
		`[{"a":1},{"a":1}]`:                       "",
		`"a"`:                                     "",
		` {"a" : 1 , "a" : 2 } `:                  "a",
	} {
		var wrong *problem
		err := twice([]byte(text))
		if err != nil {
			wrong = err.(*problem)
		}
		var name string
		_ = json.Unmarshal([]byte(`"`+want+`"`), &name)
		if (wrong != nil) != (want != "") || wrong != nil && wrong.Field != name {
			t.Errorf("%s: %+v, want %q", text, wrong, name)
		}
	}
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, `"n%d":1,`, i)
	}
	if err := twice([]byte("{" + strings.TrimSuffix(many.String(), ",") + "}")); err == nil {
		t.Error("an object with 100,000 fields")
	}
}
