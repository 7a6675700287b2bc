package redis

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestDocs runs the commands that docs/redis.md shows, "$ ..." in a fenced block, in one shell and
// on a real server, and compares the output. A line of three dots stands for any lines.
func TestDocs(t *testing.T) {
	const root = "../.."
	program, err := servers.Program("redis-cli", "redis-tools")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(servers.StartRedis(t, servers.RedisOptions{}).Addr)
	if err != nil {
		t.Fatal(err)
	}
	// A terminal shows other text than a pipe; the value of a variable is what a pipe gets.
	cli := "#!/bin/sh\nexec " + program + " -h " + host + " -p " + port + " $FORMAT \"$@\"\n"
	bin := t.TempDir()
	if err := os.WriteFile(bin+"/redis-cli", []byte(cli), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(weirCommand(t), bin+"/weir"); err != nil {
		t.Fatal(err)
	}
	kept, commands := "", 0
	for _, block := range fence.FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(block[1], "$ ") {
			continue
		}
		for _, shown := range strings.Split(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
			command, want, _ := strings.Cut(shown, "\n")
			if commands++; keeps.MatchString(command) {
				kept += command + "\n"
				continue
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", "export FORMAT=\n"+kept+"FORMAT=--no-raw\n"+command)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "WEIR_REDIS=redis://"+net.JoinHostPort(host, port))
			out, _ := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); !matches(got+"\n", strings.TrimSpace(want)+"\n") {
				t.Errorf("%s\ngot:\n%s\nthe page shows:\n%s", command, got, want)
			}
		}
	}
	if commands < 25 {
		t.Errorf("only %d commands were found", commands)
	}
}

var (
	fence = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	keeps = regexp.MustCompile(`^(?:[A-Z]+=|[a-z]+\(\))`) // variables and functions are kept for later commands
)

// matches compares an output with the documented one, in which a line "..." stands for any lines.
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
