package nginx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// memory is a file system in memory.
type memory map[string]string

func (m memory) ReadFile(name string) ([]byte, error) {
	text, ok := m[name]
	if !ok {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return []byte(text), nil
}

func (m memory) Glob(pattern string) (names []string, err error) {
	for name := range m {
		ok, err := filepath.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// show writes directives on one line.
func show(all []Directive) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%s%q", d.Name, d.Args)
		if d.Opens {
			fmt.Fprintf(&b, "{%s}", show(d.Block))
		}
		b.WriteString(";")
	}
	return b.String()
}

// TestParse: words, quotes, escapes, comments and blocks are read as nginx reads them.
func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a;", `a[];`},
		{"a b  c\t;# no\nd;", `a["b" "c"];d[];`},
		{"a#b;", `a#b[];`},
		{"a b#c;", `a["b#c"];`},
		{`a "b c" 'd;{}#' "";`, `a["b c" "d;{}#" ""];`},
		{`a "b\"c" 'd\'e' "f\\g" "h\ti\rj\n";`, `a["b\"c" "d'e" "f\\g" "h\ti\rj\n"];`},
		{`a b\;c d\ e \d;`, `a["b\\;c" "d\\ e" "\\d"];`},
		{`a b"c;`, `a["b\"c"];`},
		{"a { b; c { } } d;", `a[]{b[];c[]{};};d[];`},
		{"a b{c;}", `a["b"]{c[];};`},
		{"a }b;", ""},
		{"a b};", `a["b}"];`},
		{"a ${b}c$d;", `a["${b}c$d"];`},
		{"a $b{c;}", `a["$b"]{c[];};`},
		{"if ($a = \"b\") { c; }", `if["($a" "=" "b" ")"]{c[];};`},
		{"access_by_lua_block { if x then y('}') end -- }\n t = {1, \"}\\\"\"} } a;", `access_by_lua_block[]{};a[];`},
		{"content_by_lua_block {\n-- don't\nlocal a = 1 } b;", `content_by_lua_block[]{};b[];`},
	} {
		all, err := Parse(memory{"f": c.text}, "f")
		if c.want == "" && c.text != "" {
			if err == nil {
				t.Errorf("%q: %s, and no error", c.text, show(all))
			}
			continue
		}
		if err != nil || show(all) != c.want {
			t.Errorf("%q\n got %s, %v\nwant %s", c.text, show(all), err, c.want)
		}
	}
}

// TestParseErrors: each error has its file, line, column, and a fix.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a":                       `f:1:1: error: the file ends in the middle of a directive, at "a"`,
		"a b\n":                   `f:2:1: error: the directive "a" does not end`,
		"a {\n b;\n":              `f:1:3: error: the block that begins here does not end`,
		"a;\n  }":                 `f:2:3: error: this } closes nothing`,
		"a;\n ; b;":               `f:2:2: error: unexpected ";"`,
		"{ a; }":                  `f:1:1: error: unexpected "{"`,
		"a \"b":                   `f:1:3: error: the quote that begins here does not end`,
		"a \"b\"c;":               `f:1:6: error: unexpected 'c' after a quote`,
		"a { b }":                 `f:1:7: error: the directive "b" does not end`,
		"a_by_lua_block { {":      `f:1:16: error: the block of Lua that begins here does not end`,
		"include;":                `f:1:1: error: include has 0 arguments`,
		"x;\ninclude nowhere;":    `f:2:1: error: nowhere cannot be read: file does not exist`,
		"include [*;":             `f:1:1: error: "[*" is not a pattern: syntax error in pattern`,
		"include f;":              `error: blocks and includes are nested deeper than 32`,
		strings.Repeat("a{", 100): `error: blocks and includes are nested deeper than 32`,
		"include g;":              `g:2:2: error: unexpected ";"`,
		"a { include h; }":        `h:1:1: error: this } closes nothing`,
		"a { include i; }":        `i:1:3: error: the block that begins here does not end`,
	} {
		_, err := Parse(memory{"f": text, "g": "\n ;", "h": "}", "i": "b { c;"}, "f")
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\n got %v\nwant %s", clip(text), err, want)
		}
	}
	if _, err := Parse(memory{}, "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestInclude: names are relative to the first file, patterns are in order and may match nothing.
func TestInclude(t *testing.T) {
	files := memory{
		"etc/nginx.conf":      "a; http { include conf.d/*.conf; include none/*.conf; } b;",
		"etc/conf.d/2.conf":   "two { include snippets/s; }",
		"etc/conf.d/1.conf":   "one;",
		"etc/conf.d/3.backup": "three;",
		"etc/snippets/s":      "\n  s;",
	}
	all, err := Parse(files, "etc/nginx.conf")
	if want := `a[];http[]{one[];two[]{s[];};};b[];`; err != nil || show(all) != want {
		t.Fatalf("%s, %v; want %s", show(all), err, want)
	}
	if s := all[1].Block[1].Block[0]; s.String() != "etc/snippets/s:2:3" {
		t.Errorf("s is at %v", s)
	}
}

// TestBounds: a configuration beyond the bounds is refused fast.
func TestBounds(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a;", maxDirectives+1): "more than 200000 directives",
		strings.Repeat(" ", maxBytes+1):       "larger than 16 MiB",
		strings.Repeat("include e;", 1001):    "more than 1000 files",
	} {
		if _, err := Parse(memory{"f": text, "e": ""}, "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// FuzzParse: any file is read, or refused with a position in it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a;", "a b { c 'd'; }", "include *;", "a ${b} \\;;", "x_by_lua_block { '}' -- }\n }", "\"", "a \"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse(memory{"f": text, "g": text}, "f")
		var wrong *Error
		if err != nil && (!errors.As(err, &wrong) || wrong.Line < 1 || wrong.Col < 1 || wrong.Line > strings.Count(text, "\n")+1) {
			t.Errorf("%v", err)
		}
	})
}
