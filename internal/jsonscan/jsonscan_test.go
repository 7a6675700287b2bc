package jsonscan

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

// TestInt compares numbers with exact fractions, and refuses what is no JSON number.
func TestInt(t *testing.T) {
	rnd := seeds.Of(t.Name())
	largest := big.NewRat(1<<63-1, 1)
	for range 50_000 {
		var b strings.Builder
		for range 1 + rnd.IntN(12) {
			b.WriteString([]string{"0", "1", "9", "00", "9223372036854775807", ".", "e", "E", "+", "-", "7"}[rnd.IntN(11)])
		}
		text := b.String()
		var want int64
		ok := false
		if json.Valid([]byte(text)) && len(text) < 60 {
			if x, is := exact(text); is {
				ok = x.IsInt() && x.Sign() >= 0 && x.Cmp(largest) <= 0
				if ok {
					want = x.Num().Int64()
				}
			}
		}
		if n, is := Int([]byte(text)); n != want || is != ok {
			t.Fatalf("%q: %d, %v, want %d, %v", text, n, is, want, ok)
		}
	}
}

// exact is the value of a number. Exponents that big.Rat would need gigabytes for are not whole or
// too large, unless the number is 0.
func exact(text string) (*big.Rat, bool) {
	mantissa, exponent, found := strings.Cut(strings.ToLower(text), "e")
	x, ok := new(big.Rat).SetString(mantissa)
	if !ok || !found || x.Sign() == 0 {
		return x, ok
	}
	e, _ := new(big.Int).SetString(strings.TrimPrefix(exponent, "+"), 10)
	if e.CmpAbs(big.NewInt(500)) > 0 {
		return nil, false
	}
	power := new(big.Int).Exp(big.NewInt(10), new(big.Int).Abs(e), nil)
	if e.Sign() < 0 {
		return x.Quo(x, new(big.Rat).SetInt(power)), true
	}
	return x.Mul(x, new(big.Rat).SetInt(power)), true
}

func tree(t *testing.T, paths ...string) *Tree {
	t.Helper()
	tree := NewTree()
	for i, path := range paths {
		if err := tree.Add(path, i); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// TestFields: what a request's body says, and what is unclear.
func TestFields(t *testing.T) {
	said := func(text string) Field { return Field{Text: text, Present: true, String: true} }
	scalar := func(text string) Field { return Field{Text: text, Present: true} }
	unclear := Field{Present: true, Unclear: true}
	for body, want := range map[string]Field{
		`{"model":"a"}`: said("a"),
		`{"messages":[{"model":"x"}],"model":"a"}`: said("a"),
		`{"x":{"model":"x"},"model":"a"}`:          said("a"),
		`{"model":"a\u0062\n\"c\""}`:               said("ab\n\"c\""),
		`{"mod\u0065l":"a"}`:                       said("a"),
		"\xef\xbb\xbf {\"model\" : \"a\" } ":       said("a"),
		`{"model":12}`:                             scalar("12"),
		`{"model":true}`:                           scalar("true"),
		`{"model":""}`:                             said(""),
		`{"model":null}`:                           {},
		`{}`:                                       {},
		`{"x":1}`:                                  {},
		`{"model":"a","model":"b"}`:                unclear,
		`{"model":"a","mod\u0065l":"a"}`:           unclear,
		`{"model":"a","Model":"b"}`:                unclear,
		`{"MODEL":"a"}`:                            unclear,
		`{"model":{"a":1}}`:                        unclear,
		`{"model":["a"]}`:                          unclear,
		`{"model":"a\x"}`:                          unclear,
		`{"model":"a"`:                             unclear,
		`{"model":"a"}x`:                           unclear,
		`{"model":"a"}{"model":"b"}`:               unclear,
		`[{"model":"a"}]`:                          unclear,
		`"model"`:                                  unclear,
		`model=a`:                                  unclear,
		`5`:                                        unclear,
		``:                                         unclear,
		strings.Repeat(`{"a":`, 3000) + `1` + strings.Repeat(`}`, 3000): unclear,
	} {
		if got := Fields(tree(t, "model"), []byte(body), true)[0]; got != want {
			t.Errorf("%.80q: %+v, want %+v", body, got, want)
		}
	}
	if got := Fields(tree(t, "model"), []byte(`{"model":"a"}`), false)[0]; got != unclear {
		t.Errorf("the beginning of a body: %+v", got)
	}
	nested := tree(t, "config.max", "config.more.max")
	for body, want := range map[string]string{
		`{"config":{"max":1,"more":{"max":2}}}`:            "1 2",
		`{"config":{"more":{"x":[{}],"max":2},"max":1}}`:   "1 2",
		`{"config":{"max":1},"config":{"more":{"max":2}}}`: "unclear unclear",
		`{"config":{"max":1,"more":{"max":2},"more":{}}}`:  "1 unclear",
		`{"config":[{"max":1,"more":{"max":2}}]}`:          " ",
		`{"config":{"max":1,"More":{"max":2}}}`:            "1 unclear",
	} {
		var got []string
		for _, f := range Fields(nested, []byte(body), true) {
			if f.Unclear {
				f.Text = "unclear"
			}
			got = append(got, f.Text)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %q, want %q", body, text, want)
		}
	}
}

// FuzzFields: what is read from a body is what encoding/json reads from it, or it is unclear.
func FuzzFields(f *testing.F) {
	f.Add(`{"model":"a","x":[1,{"model":2}]}`)
	f.Add(`{"mod\u0065l":"\ud83d\ude00","Model":null}`)
	f.Add(`{"model":1e3}`)
	tree := NewTree()
	if err := tree.Add("model", 0); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got := Fields(tree, []byte(body), true)[0]
		var all map[string]any
		d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(body, "\xef\xbb\xbf")))
		d.UseNumber()
		if got.Unclear || d.Decode(&all) != nil {
			return
		}
		want := ""
		if v := all["model"]; v != nil {
			want = fmt.Sprint(v)
		}
		if got.Text != want {
			t.Fatalf("%q: %q, encoding/json reads %q", body, got.Text, want)
		}
	})
}
