package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// What weir serve may take: ms until it answers, and MB.
const (
	mostStart    = 50
	mostResident = 35
	mostSize     = 45

	// how long after the first answer the memory is read
	startSettles = time.Second
)

// servePolicy has the faces of the demo.
const servePolicy = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0", http: "127.0.0.1:0", resp: "127.0.0.1:0", rls: "127.0.0.1:0" }
limits: { per-client: { key: [client.ip], token_bucket: { rate: 5/s, burst: 10 } } }
upstreams: { up: { url: "http://127.0.0.1:9" } }
routes: [{ match: /, upstream: up, limits: [per-client] }]
`

// serve measures the program itself: how soon weir serve answers, what it holds in memory then, and its size.
func serve(r *report) error {
	dir, err := os.MkdirTemp("", "weir-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory may stay
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(servePolicy), 0o644); err != nil {
		return err
	}
	tab := table{
		Title: "weir serve without requests",
		Notes: []string{
			"start: from the start of the process until it answers /readyz",
			fmt.Sprintf("resident: VmRSS %v later, in MB; of it anonymous: RssAnon, what is not a page of the program's file", startSettles),
			"size: of the program's file in MB, with all faces, stores and tools",
		},
		Columns: []column{{"start, ms", 0}, {"resident", 1}, {"anonymous", 1}, {"size", 1}},
	}
	for _, build := range []struct {
		name  string
		flags []string
	}{{"as go build makes it", nil}, {"without symbols: -trimpath -ldflags '-s -w'", []string{"-trimpath", "-ldflags=-s -w"}}} {
		v, err := serveBuilt(r, filepath.Join(dir, strconv.Itoa(len(tab.Rows))), policy, build.flags)
		if err != nil {
			return fmt.Errorf("%s: %w", build.name, err)
		}
		line := row{Name: build.name, Values: v}
		if build.flags != nil {
			start, slow := atMost(v[0], mostStart, "ms")
			resident, much := atMost(v[1], mostResident, "MB resident")
			size, large := atMost(v[3], mostSize, "MB of file")
			line.Target, line.Missed = start+", "+resident+", "+size, slow || much || large
		}
		tab.Rows = append(tab.Rows, line)
	}
	r.add(tab)
	return nil
}

// serveBuilt builds weir in a folder, and returns the medians of some starts.
func serveBuilt(r *report, dir, policy string, flags []string) ([]float64, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	binary, err := servers.BuildWeir(ctx, dir, flags...)
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(binary)
	if err != nil {
		return nil, err
	}
	var all [3][]float64
	for range 1 + r.repeats() { // the first reads the file from the disk
		v, err := serveOnce(binary, policy)
		if err != nil {
			return nil, err
		}
		for i := range all {
			all[i] = append(all[i], v[i])
		}
	}
	last := func(i int) float64 { return median(all[i][1:]) }
	return []float64{last(0), last(1), last(2), float64(file.Size()) / 1e6}, nil
}

// serveOnce starts weir serve once: ms until it answers, then its resident memory, and the anonymous part, in MB.
func serveOnce(binary, policy string) (v [3]float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "serve", policy)
	log, err := cmd.StderrPipe()
	if err != nil {
		return v, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return v, err
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait says how it ended
		if stopped := cmd.Wait(); err == nil {
			err = stopped
		}
	}()
	admin, err := servesAt(bufio.NewScanner(log))
	if err != nil {
		return v, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return v, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return v, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return v, fmt.Errorf("/readyz: %s", resp.Status)
	}
	v[0] = float64(time.Since(began)) / float64(time.Millisecond)
	<-time.After(startSettles)
	for i, name := range []string{"VmRSS", "RssAnon"} {
		bytes, err := statusOf(strconv.Itoa(cmd.Process.Pid), name)
		if err != nil {
			return v, err
		}
		v[1+i] = bytes / 1e6
	}
	return v, nil
}

// servesAt reads from the log where the admin API is.
func servesAt(log *bufio.Scanner) (admin string, err error) {
	for log.Scan() {
		if of := servers.Listens(log.Bytes())["admin"]; len(of) > 0 {
			return of[0], nil
		}
	}
	return "", errors.Join(errors.New("the log ended before it said where the admin API is"), log.Err())
}
