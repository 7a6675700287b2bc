package jsonscan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// record is what a Sink got.
type record []string

func (r *record) Value(slot int, kind Kind, text []byte) {
	*r = append(*r, fmt.Sprintf("%d %d %q", slot, kind, text))
}

func (r *record) Doc() { *r = append(*r, "end") }

// sameAsScan compares Document with Scan, which reads a document byte by byte.
func sameAsScan(t *testing.T, tree *Tree, text string) (values int) {
	t.Helper()
	var got, want record
	d, s := NewScanner(tree, &got), NewScanner(tree, &want)
	s.Scan([]byte(text))
	for range 2 { // what came before has no effect
		got = nil
		if d.Document([]byte(text)); !slices.Equal(got, want) {
			t.Fatalf("%q\nwant %v\ngot  %v", text, want, got)
		}
		if d.Broken() || !d.Idle() {
			t.Fatalf("%q: the scanner is left within a document", text)
		}
	}
	return len(want)
}

// bits of documents, most of which are in their right places.
var (
	names    = []string{`a`, `b`, `c`, `usage`, `total`, `text`, `a\"`, `\\`, `u\u0073age`, strings.Repeat("n", 40), ``}
	scalars  = []string{`1`, `0`, `12`, `-3`, `1e2`, `true`, `null`, `nonsense`, `1.`, strings.Repeat("9", 300), `"x"`, `""`, `"\\"`, `"a\"b"`, `"` + strings.Repeat("long ", 90) + `"`}
	blanks   = []string{``, ``, ``, ` `, "\n", "\r\n\t "}
	mistakes = []string{`,`, `}`, `]`, `{`, `[`, `"`, `:`, `\`, `+`, `.`, ` `, "\x00", `1`}
)

func draw(rnd *rand.Rand, depth int) string {
	pick := func(of []string) string { return of[rnd.IntN(len(of))] }
	space := pick(blanks)
	n := rnd.IntN(4)
	switch kind := rnd.IntN(6); {
	case depth > 0 && kind < 3:
		var all []string
		for range n {
			all = append(all, space+`"`+pick(names)+`"`+pick(blanks)+`:`+draw(rnd, depth-1))
		}
		return space + `{` + strings.Join(all, `,`) + pick(blanks) + `}` + space
	case depth > 0 && kind == 3:
		var all []string
		for range n {
			all = append(all, draw(rnd, depth-1))
		}
		return `[` + strings.Join(all, space+`,`) + space + `]`
	}
	return space + pick(scalars) + pick(blanks)
}

func trees(t testing.TB) (all []*Tree) {
	for _, paths := range [][]string{{"a"}, {"usage.total", "usage.b", "a.b.c"}, {"usage", "text.a"}, {"a", "a.b", "b"}} {
		tree := NewTree()
		for i, path := range paths {
			if err := tree.Add(path, i); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, tree)
	}
	return all
}

// TestDocument: a whole document is read as by Scan, also with mistakes in it.
func TestDocument(t *testing.T) {
	raced.Skip(t)
	rnd := seeds.Of(t.Name())
	all, values := trees(t), 0
	for range 40_000 {
		text := draw(rnd, 5)
		for range rnd.IntN(3) {
			i, j := rnd.IntN(len(text)+1), rnd.IntN(len(text)+1)
			switch rnd.IntN(5) {
			case 0:
				text = text[:i] + mistakes[rnd.IntN(len(mistakes))] + text[i:]
			case 1:
				text = text[:min(i, j)] + text[max(i, j):]
			}
		}
		for _, tree := range all {
			values += sameAsScan(t, tree, text)
		}
	}
	if values < 100_000 {
		t.Errorf("%d values were found", values)
	}
	for _, deep := range []int{60, 63, 64, 65, 1022, 1023, 1024, 1025} {
		for _, text := range []string{
			`{"x":` + strings.Repeat(`[`, deep) + strings.Repeat(`]`, deep) + `,"a":1}`,
			`{"x":` + strings.Repeat(`{"a":`, deep) + `1` + strings.Repeat(`}`, deep) + `,"a":1}`,
		} {
			for _, tree := range all {
				sameAsScan(t, tree, text)
			}
		}
	}
	many := `{` + strings.Repeat(`"a":1,`, 40) + `"b":2}` // more than are noted
	for _, tree := range all {
		sameAsScan(t, tree, many)
	}
}

// FuzzDocument is TestDocument with documents of the fuzzer.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{`{"usage":{"total":1,"b":[{"total":2}]},"a":"x"}`, `[{"a":1},{"a":2}]`, `{"a":1,}`, `{"a":"\\\""} `, `{"a":1}{"a":2}`} {
		f.Add(text)
	}
	all := trees(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, tree := range all {
			sameAsScan(t, tree, text)
		}
	})
}
