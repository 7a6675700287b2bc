package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// respScript is the rule of CL.THROTTLE in Lua, with the same five values as its reply.
const respScript = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local burst, count, period, quantity = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), 1
local each = period * 1000000 / count
local longest = each * (burst + 1)
local tat = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local next = tat + each * quantity
local limited, retry, left = 0, -1, next - now
if left > longest then
	limited, retry, left = 1, math.ceil((left - longest) / 1000000), tat - now
else
	redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil(left / 1000))
end
return {limited, burst + 1, math.floor((longest - left) / each), retry, math.ceil(left / 1000000)}`

// resp measures CL.THROTTLE with redis-benchmark, beside redis-server with the same rule in Lua by EVALSHA,
// and GET as the floor.
func resp(r *report) (err error) {
	dir, err := os.MkdirTemp("", "weir-bench-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	binary, err := servers.BuildWeir(ctx, dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte("listen: { admin: \"127.0.0.1:0\", resp: \"127.0.0.1:0\" }\n"), 0o600); err != nil {
		return err
	}
	weir, err := servers.StartWeir(ctx, binary, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, weir.Stop()) }()
	peer, err := servers.Redis(ctx, servers.RedisOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.Stop()) }()
	sha, err := loadScript(ctx, peer.Addr, respScript)
	if err != nil {
		return err
	}
	subjects := []struct {
		name, address string
		words         []string
	}{
		{"redis-server, GET", peer.Addr, []string{"GET", "key:__rand_int__"}},
		{"redis-server, the rule in Lua by EVALSHA", peer.Addr, []string{"EVALSHA", sha, "1", "key:__rand_int__", "15", "30", "60"}},
		{"weir, CL.THROTTLE", weir.ByFace["resp"][0], []string{"CL.THROTTLE", "key:__rand_int__", "15", "30", "60"}},
	}
	for _, pipeline := range []int{1, 16} {
		t := table{Title: fmt.Sprintf("redis-benchmark, 50 clients, 10,000 keys, -P %d", pipeline), Columns: []column{{"calls/s", 0}, {"of Lua", 2}}}
		perSecond := make([][]float64, len(subjects))
		for range r.repeats() {
			for i, s := range subjects {
				n, err := redisBenchmark(ctx, s.address, pipeline, pipeline*int(r.round.Seconds()*40_000+1000), s.words)
				if err != nil {
					return err
				}
				perSecond[i] = append(perSecond[i], n)
			}
		}
		lua := median(perSecond[1])
		for i, s := range subjects {
			n := median(perSecond[i])
			line := row{Name: s.name, Values: []float64{n, n / lua}}
			if i == 2 {
				least := map[int]float64{1: 1, 16: 4}[pipeline]
				line.Target, line.Missed = fmt.Sprintf(">= %.0fx Lua", least), n < least*lua
			}
			t.Rows = append(t.Rows, line)
		}
		r.add(t)
	}
	return nil
}

// loadScript loads a script into a Redis, and returns its hash.
func loadScript(ctx context.Context, address, script string) (sha string, err error) {
	c, err := servers.DialRedis(ctx, address, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	reply, err := c.Do(ctx, "SCRIPT", "LOAD", script)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(reply), nil
}

// redisBenchmark returns the calls per second that redis-benchmark measures.
func redisBenchmark(ctx context.Context, address string, pipeline, calls int, words []string) (float64, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	args := append([]string{"-h", host, "-p", port, "-c", "50", "-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(calls), "-r", "10000", "--csv"}, words...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	cells := strings.Split(lines[len(lines)-1], "\",\"")
	if len(cells) < 7 {
		return 0, fmt.Errorf("redis-benchmark printed %q", out)
	}
	return strconv.ParseFloat(cells[len(cells)-7], 64)
}
