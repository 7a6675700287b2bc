package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDocs runs the commands in the documents: each line "$ weir ..." of a fenced block, with the
// files that blocks name in their first line. It compares the output; a line of three dots stands
// for any lines.
func TestDocs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []session
	dir := t.TempDir()
	for _, page := range append(pages, root+"/README.md") {
		if filepath.Base(page) == adminPage {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			if name := named.FindStringSubmatch(block[1]); name != nil {
				if err := os.WriteFile(filepath.Join(dir, name[1]), []byte(block[1]), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			shown = append(shown, sessions(filepath.Base(page), block[1])...)
		}
	}
	if len(shown) < 5 {
		t.Errorf("only %d commands were found", len(shown))
	}
	if err := os.Symlink(root+"/sim", dir+"/sim"); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{"shop", "api"} { // files that edge.yaml names
		certificate(t, name+".crt", name+".key", time.Now().Add(time.Hour))
	}
	if err := os.WriteFile("room.secrets", []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil { // the file that room.yaml names
		t.Fatal(err)
	}
	if err := os.WriteFile("plans.secret", []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil { // the file that plans.yaml names
		t.Fatal(err)
	}
	for _, s := range shown {
		_, out, errs := weir(t, s.stdin, strings.Fields(s.args)...)
		if !matches(out+errs, s.want) {
			t.Errorf("%s: weir %s\ngot:\n%s%s\nthe page shows:\n%s", s.page, s.args, out, errs, s.want)
		}
	}
}

var (
	fence = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	named = regexp.MustCompile(`\A(?:#|<!--) ([a-z-]+\.(?:yaml|weir|html|conf))(?: -->)?\n`)
)

// session is a command in a page, its input ("$ echo TEXT | weir ..."), and the output that the page
// shows.
type session struct{ page, stdin, args, want string }

func sessions(page, block string) (all []session) {
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			stdin := ""
			if text, piped := strings.CutPrefix(command, "echo "); piped {
				if text, rest, found := strings.Cut(text, " | "); found {
					stdin, command = text+"\n", rest
				}
			}
			args, ours := strings.CutPrefix(strings.TrimSpace(command), "weir ")
			if !ours || strings.HasPrefix(args, "limit ") { // it needs a Redis: proof/redis runs those
				return all
			}
			all = append(all, session{page: page, stdin: stdin, args: args})
		} else if len(all) > 0 {
			all[len(all)-1].want += line
		}
	}
	return all
}

// matches compares an output with the documented one, in which a line "  ..." stands for any lines.
func matches(got, want string) bool {
	var re strings.Builder
	for line := range strings.Lines(want) {
		if strings.TrimSpace(line) == "..." {
			re.WriteString(`(?s:.*)`)
		} else {
			re.WriteString(regexp.QuoteMeta(line))
		}
	}
	return regexp.MustCompile(`\A` + re.String() + `\z`).MatchString(got)
}
