package redis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// commandLine is the weir command with the URL of a Redis.
type commandLine struct{ binary, url string }

func (c commandLine) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !slices.Contains(args, "--timeout") { // the default is less than a busy machine stands still
		args = append(args, "--timeout", patience.String())
	}
	cmd := exec.CommandContext(ctx, c.binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, append(os.Environ(), "WEIR_REDIS="+c.url)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// says runs a command line. It fails if the exit code differs, or the output lacks the given text.
func (c commandLine) says(t *testing.T, code int, want, line string) {
	t.Helper()
	got, out, errs := c.run(t, strings.Fields(line)...)
	if got != code || !strings.Contains(out+errs, want) || (out == "") == (errs == "") {
		t.Errorf("weir %s: %d, want %d\n%s%s\nwant %s", line, got, code, out, errs, want)
	}
}

// TestLimitCommand: what weir limit does beyond the examples of docs/redis.md, on one server as a
// user with few rights, and on a cluster.
func TestLimitCommand(t *testing.T) {
	binary := weirCommand(t)
	one := servers.StartRedis(t, servers.RedisOptions{Config: []string{leastUser}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cluster, err := servers.Cluster(ctx, servers.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, url := range map[string]string{
		"one server": "redis://weir:s3cret~%2Fpw@" + one.Addr,
		"a cluster":  "redis+cluster://" + strings.Join(cluster.Addrs(), ","),
	} {
		t.Run(name, func(t *testing.T) {
			c := commandLine{binary, url}
			if code, out, errs := c.run(t, "limit", "list"); code != 0 || out+errs != "" {
				t.Errorf("%d %q %q", code, out, errs)
			}
			c.says(t, 0, "[]\n", "limit list --json")
			c.says(t, 0, "api created", "limit init api token_bucket rate=1/d burst=10")
			c.says(t, 0, `{"name":"api","scope":"overall","created":false}`, "limit init api token_bucket rate=1/d burst=10 --json")
			c.says(t, 2, "all clients share this limit: leave out --client", "limit take api 6 --client nobody")
			c.says(t, 0, "allow remaining=4", "limit take api 6")
			c.says(t, 1, "remaining=4 limit=10", "limit take api 5")
			c.says(t, 1, "deny retry=never remaining=4 limit=10", "limit take api 11")
			c.says(t, 1, `"allowed":false,"limit":10,"remaining":4,"retry_us":-1`, "limit take api 9223372036854775807 --json")
			c.says(t, 0, "allow remaining=4", "limit take api 0")
			c.says(t, 0, "api changed", "limit init api fixed_window limit=20 window=7d align=first")
			c.says(t, 0, `"used":6,"remaining":14`, "limit inspect api --json")
			c.says(t, 1, "the limit is overall", "limit init api fixed_window limit=20 window=7d align=first --per-client")

			c.says(t, 0, "mail created", "limit init mail token_bucket rate=1/d burst=2 --per-client")
			c.says(t, 2, "name the client with --client", "limit take mail")
			c.says(t, 0, "allow remaining=1", "limit take mail --client ann")
			c.says(t, 0, "mail changed", "limit init mail token_bucket rate=1/d burst=5")
			c.says(t, 0, "remaining  4", "limit inspect mail --client ann")
			c.says(t, 0, `["ann"]`, "limit inspect mail --clients --json")
			if _, _, errs := c.run(t, "limit", "take", "mail", "--client", "\x1b[2J\nbob"); errs != "" {
				t.Errorf("%q", errs)
			}
			c.says(t, 0, `"\x1b[2J\nbob"`, "limit inspect mail --clients")

			c.says(t, 3, `there is no limit "nothing"`, "limit take nothing")
			c.says(t, 1, `there is no limit "nothing"`, "limit inspect nothing")
			c.says(t, 1, `there is no limit "nothing"`, "limit delete nothing")
			c.says(t, 0, "api created", "limit init api token_bucket rate=1/d burst=10 --prefix weir:other:")
			c.says(t, 0, "api   overall     fixed_window", "limit list")
			c.says(t, 0, `{"deleted":true,"name":"api"}`, "limit delete api --json")
			c.says(t, 0, `[{"name":"mail","scope":"per_client"`, "limit list --json")
			c.says(t, 0, "allow remaining=9", "limit take api --prefix weir:other:")
		})
	}
	// It connects again until the timeout, which a machine that stands still may reach before a reply.
	for timeout := 200 * time.Millisecond; ; timeout *= 2 {
		code, _, errs := (commandLine{binary, "redis://weir:wr0ng@" + one.Addr}).run(t, "limit", "list", "--timeout", timeout.String())
		if code != 1 || strings.Contains(errs, "wr0ng") || timeout > patience {
			t.Fatalf("%d %q", code, errs)
		}
		if strings.Contains(errs, "WRONGPASS") {
			break
		}
	}
}

// TestLimitCommandPages: more limits and clients than one call returns, and names of deleted
// limits.
func TestLimitCommandPages(t *testing.T) {
	binary := weirCommand(t)
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{})
	n := weirredis.NewNamed(store)
	const many = 1001
	for i := range many {
		if _, err := n.Init(t.Context(), fmt.Sprintf("limit-%04d", i), slow(5), weirredis.PerClient); err != nil {
			t.Fatal(err)
		}
		if d, err := n.Take(t.Context(), "limit-0000", fmt.Sprint("client", i), 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	redis(t, client, "DEL", "weir:limit:{limit-0500}")
	c := commandLine{binary, server.URL()}
	for args, want := range map[string]int{"limit list --json": many - 1, "limit inspect limit-0000 --clients --json": many} {
		var all []json.RawMessage
		_, out, errs := c.run(t, strings.Fields(args)...)
		if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != want {
			t.Errorf("weir %s: %d of %d, %v\n%s", args, len(all), want, err, errs)
		}
	}
	if _, out, _ := c.run(t, "limit", "list"); strings.Count(out, "\n") != many-1 || !strings.HasPrefix(out, "limit-0000  per_client  token_bucket  ") {
		t.Errorf("%.200s", out)
	}
	c.says(t, 1, `there is no limit "limit-0500"`, "limit delete limit-0500")
	if names, err := n.List(t.Context(), "limit-0499", 1); err != nil || len(names) != 1 || names[0] != "limit-0501" {
		t.Errorf("%v, %v", names, err)
	}
}
