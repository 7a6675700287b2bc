package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// jsonScript has wrk send takes of 10,000 keys.
const jsonScript = `local n = 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
	n = n % 10000 + 1
	return wrk.format(nil, "/v1/take", nil, '{"limit": "per-user", "key": ["user-' .. n .. '"]}')
end
`

// jsonService measures POST /v1/take with wrk, beside a handler of net/http that decides nothing.
func jsonService(r *report) (err error) {
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		return errors.New("wrk is not installed: make needs")
	}
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
	policy, script := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "take.lua")
	const text = "listen: { admin: \"127.0.0.1:0\", http: \"127.0.0.1:0\" }\nlimits: { per-user: { key: header.user, token_bucket: { rate: 1000000/s, burst: 1000000000 } } }\n"
	if err := errors.Join(os.WriteFile(policy, []byte(text), 0o600), os.WriteFile(script, []byte(jsonScript), 0o600)); err != nil {
		return err
	}
	weir, err := servers.StartWeir(ctx, binary, policy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, weir.Stop()) }()
	floor, err := startFloor(ctx, dir, "jsonfloor")
	if err != nil {
		return err
	}
	defer func() { _ = floor.stop() }() // it is killed
	subjects := []struct{ name, address string }{{"net/http, a handler that decides nothing", floor.address}, {"weir, POST /v1/take", weir.ByFace["http"][0]}}
	rates, late := make([][]float64, len(subjects)), make([][]float64, len(subjects))
	for range r.repeats() {
		for i, s := range subjects {
			out, err := exec.CommandContext(ctx, wrk, "-t", "1", "-c", "64", "-d", strconv.Itoa(max(int(r.round.Seconds()), 1))+"s", "--latency", "-s", script, "http://"+s.address).CombinedOutput()
			if err != nil {
				return fmt.Errorf("wrk: %w\n%s", err, out)
			}
			v, err := parseWrk(string(out))
			if err != nil || v["not2xx"] > 0 || v["errors"] > 0 {
				return fmt.Errorf("wrk, %s: %w\n%s", s.name, err, out)
			}
			rates[i], late[i] = append(rates[i], v["rate"]), append(late[i], v["p99"])
		}
	}
	t := table{Title: "POST /v1/take, 64 connections, 10,000 keys", Columns: []column{{"calls/s", 0}, {"p99 ms", 2}, {"of the floor", 2}}}
	least := median(rates[0])
	for i, s := range subjects {
		n := median(rates[i])
		line := row{Name: s.name, Values: []float64{n, median(late[i]), n / least}}
		if i == 1 {
			line.Target, line.Missed = ">= 0.8x the floor", n < 0.8*least
		}
		t.Rows = append(t.Rows, line)
	}
	r.add(t)
	return nil
}
