package traffic

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

const example = "../../examples/flash-sale"

// TestFlashSale runs the commands of the example's README with its files; only ports are replaced
// by free ones. A shell runs what follows a $, and must print the lines below it.
func TestFlashSale(t *testing.T) {
	for _, name := range []string{"curl", "wrk", "nginx", "redis-server"} {
		program(t, name)
	}
	if _, err := servers.Program("redis-cli", "redis-tools"); err != nil {
		t.Fatal(err)
	}
	here, shop, addresses := openSale(t)
	sections := readme(t)
	for _, s := range sections {
		switch {
		case s.title == "A crowd" || s.title == "Without Redis":
			t.Run(s.title, func(t *testing.T) {
				s.any = figures
				s.run(t, here, addresses)
			})
		case strings.HasPrefix(s.title, "Two"):
			t.Run(s.title, func(t *testing.T) { s.run(t, here, addresses) })
		}
	}
	// The limit is 110 in three seconds. On a busy machine the crowd may take longer than that, or come
	// for a part of them only.
	keptBound(t, filepath.Join(shop, "access.log"), "GET /buy?item=9 ", 50, 20, 50)
	keptBound(t, filepath.Join(shop, "access.log"), "GET /buy?item=10 ", 2, 20, 2)

	// The four ways take ten seconds each, and are independent, so they run at the same time.
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
	after := 0
	for _, s := range sections {
		if s.title == "What the shop saw" || s.title == "Without waiting" {
			after++
			t.Run(s.title, func(t *testing.T) { s.run(t, here, addresses) })
		}
	}
	if n := len(sections); after != 2 || n != 11 {
		t.Errorf("the README has %d sections, %d of them at the end: is one of them not run?", n, after)
	}
}

// openSale runs the example's script in a directory of its own. It returns the directory, the
// shop's directory, and a replacer of the README's addresses.
func openSale(t *testing.T) (here, shop string, addresses *strings.Replacer) {
	t.Helper()
	here, shop = t.TempDir(), t.TempDir()
	// On a busy machine, Redis may take longer than the deadline of the example, whose crowd comes for three seconds.
	replace := []string{"/tmp/shop", shop, "deadline: 250ms", "deadline: 1s"}
	var all []string
	for _, written := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:9090", "127.0.0.1:9091", "127.0.0.1:9000", "127.0.0.1:6390"} {
		free, err := servers.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(free.Release)
		all, replace = append(all, free.Host), append(replace, written, free.Host)
		if port, redis := strings.CutPrefix(written, "127.0.0.1:6"); redis {
			replace = append(replace, "--port 6"+port, "--port "+strings.TrimPrefix(free.Host, "127.0.0.1:"))
		}
	}
	addresses = strings.NewReplacer(replace...)
	for _, name := range []string{"run", "policy.yaml", "nginx.conf", "busy.html", "flood.lua", "flash-sale.weir"} {
		copyFile(t, filepath.Join(here, name), filepath.Join(example, name), addresses.Replace)
	}
	cmd := exec.Command("sh", filepath.Join(here, "run"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "LC_ALL=C")
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	sale, err := servers.Start(ctx, cmd, func(output string) bool { return strings.Contains(output, "The sale is open at http://"+all[0]) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop(t, sale)
		for _, addr := range all { // all have ended with it
			if l, err := net.Listen("tcp", addr); err != nil {
				t.Errorf("%s is not free again: %v", addr, err)
			} else {
				l.Close()
			}
		}
	})
	return here, shop, addresses
}

// keptBound compares the requests in the upstream's log with a limit: never more than the burst and
// the rate, for as long as requests came, and at least a given number in all.
func keptBound(t *testing.T, log, request string, burst, rate, least int) {
	t.Helper()
	var first, last time.Time
	n := 0
	for line := range strings.Lines(read(t, log)) {
		if !strings.Contains(line, request) {
			continue
		}
		_, rest, _ := strings.Cut(line, "[")
		text, _, _ := strings.Cut(rest, "]")
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", text)
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			first = at
		}
		last = at
	}
	// The log has whole seconds, and is written after a response: it may begin late, and end late.
	most := burst + rate*(int(last.Sub(first)/time.Second)+2)
	if n > most || n < least {
		t.Errorf("%s: the upstream saw %d, and should have seen from %d to %d", request, n, least, most)
	}
}

// section is a part of the README below a heading.
type section struct {
	title    string
	commands []command
	any      *regexp.Regexp // matches text that may be any number; nil for none
}

// command is what follows a $, and the lines that it prints.
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
		got, want := strings.ReplaceAll(string(out), "\r\n", "\n"), c.output
		if s.any != nil {
			got, want = s.any.ReplaceAllString(got, "any$1"), s.any.ReplaceAllString(want, "any$1")
		}
		if !expected(want).MatchString(got) {
			t.Errorf("$ %sprinted\n%s\nand in the README\n%s", c.line, got, c.output)
		}
	}
}

// figures are how many requests were made, and their results: by client in each gateway, and in the
// upstream's log.
var figures = regexp.MustCompile(`(?m)\b\d+( times)|^\d+()$`)

var (
	date    = regexp.MustCompile(`Date: [A-Za-z0-9:,\\. ]+GMT`)
	seconds = regexp.MustCompile(`(Retry-After: |;t=)10\b`)
)

// expected matches an output except for its date, and for up to three of the ten seconds, which may
// have passed on a busy machine.
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
