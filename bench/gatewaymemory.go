package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// How many connections are open, and how long after that the memory is read.
const (
	manyConnections = 5000
	memorySettles   = 3 * time.Second
)

// gatewayMemory measures for both proxies the memory of a connection that is idle after one
// request, and of one whose request waits in a queue.
func gatewayMemory(r *report) error {
	site, err := newSite()
	if err != nil {
		return err
	}
	defer site.close()
	queue := traffic{
		nginx: fmt.Sprintf("limit_req_zone $binary_remote_addr zone=z:10m rate=1r/m; limit_req zone=z burst=%d;", 2*manyConnections),
		weir:  fmt.Sprintf("leaky_bucket: { rate: 1/m, queue: %d }", 2*manyConnections),
	}
	tab := table{
		Title: fmt.Sprintf("bytes for each of %d connections", manyConnections),
		Notes: []string{
			fmt.Sprintf("growth of the memory of the proxy and its workers (Pss in /proc/PID/smaps_rollup, read %v later), without the kernel's memory for sockets", memorySettles),
			"idle: each connection has had one response, and stays open; queued: each has sent a request that waits in the queue",
			"nginx, queued: " + queue.nginx, "weir, queued: " + queue.weir,
		},
		Columns: []column{{"idle", 0}, {"queued", 0}, {"idle / nginx", 2}, {"queued / nginx", 2}},
	}
	found := map[string][]float64{}
	for _, what := range []struct {
		traffic
		answered bool // the connections get responses, and are idle then
	}{{traffics()[0], true}, {queue, false}} {
		both, err := site.pair(what.traffic)
		if err != nil {
			return err
		}
		for _, p := range []proxy{both.nginx, both.weir} {
			bytes, err := p.connections(manyConnections, what.answered)
			if err != nil {
				both.stop() //nolint:errcheck // the other error says more
				return fmt.Errorf("%s: %w", p.name, err)
			}
			found[p.name] = append(found[p.name], bytes)
		}
		if err := both.stop(); err != nil {
			return err
		}
	}
	for _, name := range []string{"nginx", subjectGateway} {
		v := found[name]
		line := row{Name: name, Values: []float64{v[0], v[1], v[0] / found["nginx"][0], v[1] / found["nginx"][1]}}
		if name == subjectGateway {
			idle, much := atMost(v[0], 1500, "bytes idle")
			queued, more := atMost(v[1], 10_000, "bytes queued")
			line.Target, line.Missed = idle+", "+queued, much || more
		}
		tab.Rows = append(tab.Rows, line)
	}
	r.add(tab)
	return nil
}

// connections opens n connections, and returns the memory that each takes.
func (p proxy) connections(n int, answered bool) (bytes float64, err error) {
	all := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for i := range n + 1 {
		if i == 1 { // the first connection has allocated what all of them share
			<-time.After(memorySettles)
			if bytes, err = p.memory(); err != nil {
				return 0, err
			}
		}
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			return 0, err
		}
		all = append(all, c)
		if _, err := fmt.Fprintf(c, "GET /items/%d HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\n\r\n", i); err != nil {
			return 0, err
		}
		if !answered && i > 0 {
			continue
		}
		if err := c.SetReadDeadline(time.Now().Add(startTime)); err != nil {
			return 0, err
		}
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("request %d: %s", i, resp.Status)
		}
	}
	<-time.After(memorySettles)
	after, err := p.memory()
	return (after - bytes) / float64(n), err
}

// memory returns the memory of a proxy with its workers. Shared memory counts once.
func (p proxy) memory() (sum float64, err error) {
	pids, err := family(p.process.Pid())
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("the memory of a process is read from /proc, which only Linux has: %w", err)
		}
		kB, err := parsePss(string(text))
		if err != nil {
			return 0, err
		}
		sum += 1024 * kB
	}
	return sum, nil
}

// parsePss reads the proportional set size from /proc/PID/smaps_rollup, in kB.
func parsePss(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			return strconv.ParseFloat(f[1], 64)
		}
	}
	return 0, fmt.Errorf("%q has no Pss", text)
}
