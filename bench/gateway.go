package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

const (
	wrkConnections = 64
	startTime      = 30 * time.Second // for a server to be ready
	upstreamBody   = 1 << 10
)

// Subjects of gateway. Those of nginx are named by their number of workers.
const (
	subjectGateway  = "weir"
	subjectUpstream = "the upstream itself"
	subjectNetHTTP  = "net/http alone"
	subjectCaddy    = "caddy"
)

// A traffic is one measurement of gateway: with a limit so high that it admits every request, or so
// low that it refuses every request.
type traffic struct {
	name    string
	nginx   string // the directives for limits
	weir    string // the limit
	refused bool
	target  float64 // of the requests/s, as a ratio to nginx's
}

// traffics returns the measurements, which are the same for both proxies.
func traffics() []traffic {
	return []traffic{
		{
			name:   "all admitted",
			nginx:  "limit_req_zone $binary_remote_addr zone=z:10m rate=1000000r/s; limit_req zone=z burst=100000 nodelay;",
			weir:   "leaky_bucket: { rate: 1000000/s, queue: 100000, delay_after: 100000 }",
			target: 0.8,
		},
		{
			name:    "all refused",
			nginx:   "limit_req_zone $binary_remote_addr zone=z:10m rate=1r/m; limit_req zone=z;",
			weir:    "leaky_bucket: { rate: 1/m, queue: 0 }",
			refused: true,
			target:  0.95,
		},
	}
}

// gateway measures the whole gateway beside nginx: real processes, real sockets, one upstream, and
// wrk as the client.
func gateway(r *report) error {
	site, err := newSite()
	if err != nil {
		return err
	}
	defer site.close()
	for _, t := range traffics() {
		if err := r.proxies(t, site.wrk, site.binary, site.upstream.Addr, site.dir); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// proxies measures all proxies with one traffic.
func (r *report) proxies(t traffic, wrk, binary, upstream, dir string) (err error) {
	all := []proxy{}
	if !t.refused {
		all = append(all, proxy{subjectUpstream, upstream, nil})
	}
	defer func() {
		for _, p := range all {
			if p.process != nil {
				err = errors.Join(err, p.process.Stop())
			}
		}
	}()
	var peers []string
	for _, workers := range nginxWorkers() {
		p, err := startNginx(dir, "proxy", workers, nginxProxy(t.nginx, upstream))
		if err != nil {
			return err
		}
		peers = append(peers, fmt.Sprintf("nginx, %d workers", workers))
		all = append(all, proxy{peers[len(peers)-1], p.Addr, p.Process})
	}
	weir, err := startGateway(dir, binary, t.weir, upstream)
	if err != nil {
		return err
	}
	all = append(all, proxy{subjectGateway, weir.Gateway, weir.Process})
	to := upstream
	if t.refused {
		to = "-"
	}
	plain, err := startBare(to)
	if err != nil {
		return err
	}
	all = append(all, proxy{subjectNetHTTP, plain.addr, plain})
	if !t.refused {
		caddy, err := startCaddy(dir, upstream)
		if err != nil {
			return err
		}
		all = append(all, proxy{subjectCaddy, caddy.Addr, caddy.Process})
	}
	seconds := r.repeats()
	runs := make([][]values, len(all))
	// warm up: the first requests open connections to the upstream, and page in code
	for _, p := range all {
		if r.cold {
			break
		}
		if _, err := p.drive(wrk, 1, t.refused); err != nil {
			return err
		}
	}
	for round := range r.repeats() {
		for _, i := range turns(round, len(all)) {
			v, err := all[i].drive(wrk, seconds, t.refused)
			if err != nil {
				return err
			}
			runs[i] = append(runs[i], v)
		}
	}
	r.add(proxyTable(t, all, peers, runs, seconds))
	return nil
}

// nginxWorkers returns how many workers nginx is measured with: one for each CPU, as with
// worker_processes auto, and GOMAXPROCS, the number of weir's threads, if that differs.
func nginxWorkers() []int {
	auto, same := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	if auto == same {
		return []int{auto}
	}
	return []int{auto, same}
}

// startNginx starts nginx in a directory of its own.
func startNginx(dir, name string, workers int, block string) (*servers.Server, error) {
	dir, err := os.MkdirTemp(dir, name+"-*")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	conf := strings.Replace(servers.HTTP(block), "worker_processes 1;", fmt.Sprintf("worker_processes %d;", workers), 1)
	return servers.Nginx(ctx, dir, conf)
}

// startCaddy starts Caddy in a directory of its own.
func startCaddy(dir, upstream string) (*servers.Server, error) {
	dir, err := os.MkdirTemp(dir, "caddy-*")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return servers.Caddy(ctx, dir, upstream)
}

// nginxProxy returns an nginx configuration tuned for speed: connections to the upstream are kept,
// and nothing is logged.
func nginxProxy(limits, upstream string) string {
	return fmt.Sprintf(`
	limit_req_status 429;
	limit_req_log_level info; # not logged: the error log starts at a higher level
	keepalive_requests 1000000000;
	upstream up { server %s; keepalive %d; keepalive_requests 1000000000; }
	%s
	server {
		listen {{.Addr}} backlog=4096;
		location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $remote_addr; }
	}`, upstream, 2*wrkConnections, limits)
}

// startGateway starts weir serve.
func startGateway(dir, binary, limit, upstream string) (*servers.Weir, error) {
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits:
  per-client:
    key: [client.ip]
    %s
upstreams: { up: { url: "http://%s" } }
routes: [{ match: /, upstream: up, limits: [per-client] }]
`, limit, upstream)), 0o644); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	return servers.StartWeir(ctx, binary, file)
}

// A proxy is one subject of gateway.
type proxy struct {
	name    string
	addr    string
	process process // nil: its CPU time is not measured
}

// A process is a running subject, for its memory and its CPU time.
type process interface {
	Pid() int
	Stop() error
}

// drive has wrk send requests for a number of seconds. Each connection sends the next request when it
// has the response.
func (p proxy) drive(wrk string, seconds int, refused bool) (values, error) {
	before, err := p.cpu()
	if err != nil {
		return nil, err
	}
	v, err := runWrk(wrk, "http://"+p.addr+"/items/7", wrkConnections, seconds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	n, not2xx := v.get("requests"), v["not2xx"]
	switch {
	case v["errors"] > 0:
		return nil, fmt.Errorf("%s: %v of %v requests failed", p.name, v["errors"], n)
	case !refused && not2xx > 0:
		return nil, fmt.Errorf("%s: %v of %v requests were refused, and the limit should admit all", p.name, not2xx, n)
	case refused && n-not2xx > float64(seconds): // the limit admits a request now and then
		return nil, fmt.Errorf("%s: %v of %v requests were admitted, and the limit should refuse nearly all", p.name, n-not2xx, n)
	}
	after, err := p.cpu()
	if err != nil {
		return nil, err
	}
	if p.process != nil {
		v["cpu"] = (after - before).Seconds() / n * 1000
	}
	return v, nil
}

// cpu is the CPU time of the subject and its workers.
func (p proxy) cpu() (time.Duration, error) {
	if p.process == nil {
		return 0, nil
	}
	pids, err := family(p.process.Pid())
	if err != nil {
		return 0, err
	}
	return cpuTime(pids...)
}

// proxyTable returns the table of the results. Ratios are medians of the rounds' ratios.
func proxyTable(t traffic, all []proxy, peers []string, runs [][]values, seconds int) table {
	tab := table{
		Title: fmt.Sprintf("%s, %d connections, GOMAXPROCS %d", t.name, wrkConnections, runtime.GOMAXPROCS(0)),
		Notes: []string{
			fmt.Sprintf("wrk with one thread, %d s for each proxy in turn; the upstream is nginx with one worker, and responds with %d bytes; all run on this machine", seconds, upstreamBody),
			"nginx: " + t.nginx + " One worker for each CPU, and a second row with GOMAXPROCS workers, if that differs",
			"weir: " + t.weir,
			subjectNetHTTP + ": the reverse proxy of Go's standard library without limits, or a handler that refuses every request",
			"p50, p99: latencies measured by wrk; CPU: CPU time of the proxy and its workers for 1,000 requests",
		},
		Columns: []column{{"requests/s", 0}, {"p50, ms", 2}, {"p99, ms", 2}, {"CPU s/1000", 4}},
	}
	for _, peer := range peers {
		tab.Columns = append(tab.Columns, column{"/ " + peer, 2}, column{"p99", 2}, column{"CPU", 2})
	}
	for i, p := range all {
		row := medians(runs[i]).row(p.name, "rate", "p50", "p99", "cpu")
		for j := range all {
			for _, peer := range peers {
				if all[j].name != peer {
					continue
				}
				rate := ratio(runs[i], runs[j], "rate")
				row.Values = append(row.Values, rate, ratio(runs[i], runs[j], "p99"), ratio(runs[i], runs[j], "cpu"))
				if p.name == subjectGateway {
					text, missed := atLeast(rate, t.target, peer)
					row.Target, row.Missed = strings.TrimPrefix(row.Target+"; "+text, "; "), row.Missed || missed
				}
			}
		}
		tab.Rows = append(tab.Rows, row)
	}
	for i := range all {
		if all[i].name == subjectCaddy {
			tab.beside(all, runs, i)
		}
	}
	return tab
}

// beside adds a column with the ratio of the requests/s to Caddy's, for which there is a target.
func (t *table) beside(all []proxy, runs [][]values, caddy int) {
	t.Notes = append(t.Notes, subjectCaddy+": its reverse_proxy with default settings, without limits")
	t.Columns = append(t.Columns, column{"/ " + subjectCaddy, 2})
	for i := range t.Rows {
		rate := ratio(runs[i], runs[caddy], "rate")
		t.Rows[i].Values = append(t.Rows[i].Values, rate)
		if all[i].name == subjectGateway {
			text, missed := atLeast(rate, 3, subjectCaddy)
			t.Rows[i].Target, t.Rows[i].Missed = t.Rows[i].Target+"; "+text, t.Rows[i].Missed || missed
		}
	}
}

// ratio returns the median, over the rounds, of the ratio of two subjects' figures.
func ratio(of, to []values, name string) float64 {
	var all []float64
	for round := range of {
		all = append(all, of[round].get(name)/to[round].get(name))
	}
	return median(all)
}

// family returns a process and its children.
func family(pid int) ([]int, error) {
	pids := []int{pid}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return nil, err
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}
