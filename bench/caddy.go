package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// caddyLimit is a limit per client that admits all requests.
const caddyLimit = "\tweir {\n\t\tlimit per-client {\n\t\t\tkey {client_ip}\n\t\t\trate 1000000000/s\n\t\t\tburst 1000000\n\t\t}\n\t}\n"

// caddySubject is a Caddy, and what wrk measured.
type caddySubject struct {
	name, site string
	floor      int // the subject without weir, by its position
	address    string
	pid        int

	rates, p99, cpu []float64 // of each round; CPU in microseconds for each request
}

// caddyModule measures Caddy with the module weircaddy, and the same program without its directive: for
// a response of a few bytes, and for a file.
func caddyModule(r *report) (err error) {
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
	binary, err := servers.BuildCaddy(ctx, dir)
	if err != nil {
		return err
	}
	respond, file := "\trespond hello\n", "\troot "+dir+"/site\n\tfile_server\n"
	subjects := []*caddySubject{
		{name: "respond", site: respond, floor: 0}, {name: "respond, weir", site: caddyLimit + respond, floor: 0},
		{name: "file_server", site: file, floor: 2}, {name: "file_server, weir", site: caddyLimit + file, floor: 2},
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "site"), 0o755), os.WriteFile(filepath.Join(dir, "site", "index.html"), []byte("<p>hello</p>\n"), 0o644)); err != nil {
		return err
	}
	for i, s := range subjects {
		own := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(own, 0o755); err != nil {
			return err
		}
		server, err := servers.WeirCaddy(ctx, binary, own, "", s.site)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		s.address, s.pid = server.Addr, server.Pid()
	}
	seconds := max(int(r.round.Seconds()), 1)
	for range r.repeats() {
		for _, s := range subjects {
			before, errBefore := cpuTime(s.pid)
			v, err := runWrk(wrk, "http://"+s.address+"/", wrkConnections, seconds)
			after, errAfter := cpuTime(s.pid)
			if err = errors.Join(err, errBefore, errAfter); err != nil || v["not2xx"] > 0 || v["errors"] > 0 {
				return fmt.Errorf("wrk, %s: %w, %v", s.name, err, v)
			}
			s.rates, s.p99 = append(s.rates, v["rate"]), append(s.p99, v["p99"])
			s.cpu = append(s.cpu, float64((after-before).Microseconds())/v["requests"])
		}
	}
	r.add(caddyTable(subjects))
	return nil
}

func caddyTable(subjects []*caddySubject) table {
	t := table{
		Title:   fmt.Sprintf("Caddy with the module weircaddy, %d connections", wrkConnections),
		Notes:   []string{"medians of the rounds; / without: beside the same program without the directive, in the same round", "CPU is that of Caddy for each request"},
		Columns: []column{{"requests/s", 0}, {"p99 ms", 2}, {"/ without", 2}, {"CPU µs", 1}, {"/ without", 2}},
	}
	for i, s := range subjects {
		var ratios, cpu []float64
		for round := range s.rates {
			ratios = append(ratios, s.rates[round]/subjects[s.floor].rates[round])
			cpu = append(cpu, s.cpu[round]/subjects[s.floor].cpu[round])
		}
		line := row{Name: s.name, Values: []float64{median(s.rates), median(s.p99), median(ratios), median(s.cpu), median(cpu)}}
		if i != s.floor {
			line.Target, line.Missed = atLeast(median(ratios), 0.9, "Caddy without it")
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}
