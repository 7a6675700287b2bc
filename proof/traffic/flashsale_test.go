package traffic

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const example = "../../examples/flash-sale"

// TestFlashSale does what the example's README says, with its files: only addresses are replaced by free ones. What stands after a $ is
// run by a shell, and has to print what stands below it.
func TestFlashSale(t *testing.T) {
	shop, here := t.TempDir(), t.TempDir()
	for _, name := range []string{"busy.html", "flash-sale.weir"} {
		copyFile(t, filepath.Join(here, name), filepath.Join(example, name), nil)
	}
	conf := read(t, filepath.Join(example, "nginx.conf"))
	up := startNginx(t, shop, change(t, conf, "127.0.0.1:9000", "{{.Addr}}"))
	g := &gateway{policy: filepath.Join(here, "policy.yaml")}
	copyFile(t, g.policy, filepath.Join(example, "policy.yaml"), func(text string) string {
		text = change(t, text, "127.0.0.1:9000", up.Addr)
		return change(t, change(t, text, "127.0.0.1:8080", `"127.0.0.1:0"`), "127.0.0.1:9090", `"127.0.0.1:0"`)
	})
	g.start(t)
	addresses := strings.NewReplacer("127.0.0.1:8080", g.Gateway, "127.0.0.1:9090", g.Admin, "/tmp/shop", shop)

	// The four ways take ten seconds each, and none knows of the others: they are tried at the same time.
	program(t, "curl")
	sections := readme(t)
	t.Run("ways", func(t *testing.T) {
		ways := 0
		for _, s := range sections {
			if strings.HasPrefix(s.title, "By ") {
				ways++
				t.Run(s.title, func(t *testing.T) {
					t.Parallel()
					s.run(t, here, addresses)
				})
			}
		}
		if ways != 4 {
			t.Errorf("the README has %d ways to limit", ways)
		}
	})
	for _, s := range sections {
		if !strings.HasPrefix(s.title, "By ") && len(s.commands) > 0 {
			t.Run(s.title, func(t *testing.T) { s.run(t, here, addresses) })
		}
	}
}

// section is a part of the README below a heading.
type section struct {
	title    string
	commands []command
}

// command is what stands after a $, and the lines that it prints.
type command struct{ line, output string }

func readme(t *testing.T) []section {
	t.Helper()
	var all []section
	console := false
	for line := range strings.Lines(read(t, filepath.Join(example, "README.md"))) {
		title, heading := strings.CutPrefix(line, "## ")
		switch {
		case console && line == "```\n":
			console = false
		case console:
			s := &all[len(all)-1]
			if text, found := strings.CutPrefix(line, "$ "); found {
				s.commands = append(s.commands, command{line: text})
			} else {
				s.commands[len(s.commands)-1].output += line
			}
		case line == "```console\n":
			console = true
		case heading:
			all = append(all, section{title: strings.TrimSpace(title)})
		}
	}
	return all
}

func (s *section) run(t *testing.T, dir string, addresses *strings.Replacer) {
	for _, c := range s.commands {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", addresses.Replace(c.line))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
		if got := strings.ReplaceAll(string(out), "\r\n", "\n"); !expected(c.output).MatchString(got) {
			t.Errorf("$ %sprinted\n%s\nand in the README\n%s", c.line, got, c.output)
		}
	}
}

var (
	date    = regexp.MustCompile(`Date: [A-Za-z0-9:,\\. ]+GMT`)
	seconds = regexp.MustCompile(`(Retry-After: |;t=)10\b`)
)

// expected matches an output but for its date, and for up to three of the ten seconds, which may have gone by on a busy machine.
func expected(output string) *regexp.Regexp {
	text := date.ReplaceAllString(regexp.QuoteMeta(output), "Date: .*GMT")
	return regexp.MustCompile("^" + seconds.ReplaceAllString(text, "$1(10|[789])") + "$")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// change replaces what has to be there.
func change(t *testing.T, text, old, by string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %s in %s", old, text)
	}
	return strings.ReplaceAll(text, old, by)
}

func copyFile(t *testing.T, to, from string, edit func(string) string) {
	t.Helper()
	text := read(t, from)
	if edit != nil {
		text = edit(text)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
