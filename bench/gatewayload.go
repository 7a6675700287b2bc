package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/proof/servers"
)

// share is the fraction of the gateway's capacity at which latency is measured: below saturation, so
// that requests do not queue.
const share = 0.7

// gatewayLoad measures the latency of both proxies at the same rate: a fraction of the capacity of
// the slower one, the gateway.
func gatewayLoad(r *report) error {
	load, err := servers.Program("h2load", "nghttp2-client")
	if err != nil {
		return err
	}
	site, err := newSite()
	if err != nil {
		return err
	}
	defer site.close()
	t := traffics()[0]
	both, err := site.pair(t)
	if err != nil {
		return err
	}
	defer both.stop() //nolint:errcheck // the measurement is over
	seconds := max(2, r.repeats())
	capacity, err := both.weir.drive(site.wrk, seconds, false)
	if err != nil {
		return err
	}
	rate := share * capacity.get("rate")
	all := []proxy{both.nginx, both.weir}
	runs := make([][]values, len(all))
	for round := range r.repeats() {
		for _, i := range turns(round, len(all)) {
			v, err := all[i].load(load, site.dir, seconds, rate)
			if err != nil {
				return err
			}
			runs[i] = append(runs[i], v)
		}
	}
	tab := table{
		Title: fmt.Sprintf("%.0f %% of weir's capacity, %d connections", 100*share, wrkConnections),
		Notes: []string{
			fmt.Sprintf("h2load over HTTP/1.1, %d s for each proxy in turn, at a constant rate per connection; latencies measured by h2load", seconds),
			"nginx: " + t.nginx, "weir: " + t.weir,
		},
		Columns: []column{{"requests/s", 0}, {"p50, ms", 2}, {"p99, ms", 2}, {"p99.9, ms", 2}, {"CPU s/1000", 4}, {"p99 / nginx", 2}},
	}
	for i, p := range all {
		row := medians(runs[i]).row(p.name, "rate", "p50", "p99", "p999", "cpu")
		ratio := ratio(runs[i], runs[0], "p99")
		row.Values = append(row.Values, ratio)
		if p.name == subjectGateway {
			row.Target, row.Missed = atMost(ratio, 1.3, "nginx")
		}
		tab.Rows = append(tab.Rows, row)
	}
	r.add(tab)
	return nil
}

// load has h2load send requests at a constant rate for a number of seconds.
func (p proxy) load(h2load, dir string, seconds int, rate float64) (values, error) {
	before, err := p.cpu()
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "h2load.log")
	defer os.Remove(log)
	each := strconv.FormatFloat(rate/wrkConnections, 'f', 2, 64)
	out, err := exec.Command(h2load, "--h1", "-t1", "-c", strconv.Itoa(wrkConnections), "-D", strconv.Itoa(seconds), "--rps", each,
		"--log-file", log, "http://"+p.addr+"/items/7").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("h2load: %w\n%s", err, out)
	}
	v, err := readLoad(log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", p.name, err, out)
	}
	after, err := p.cpu()
	if err != nil {
		return nil, err
	}
	v["rate"] = v.get("requests") / float64(seconds)
	v["cpu"] = (after - before).Seconds() / v.get("requests") * 1000
	return v, nil
}

// readLoad reads a log of h2load: for each request a line with its start, its status and its
// latency in microseconds.
func readLoad(path string) (values, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var took []float64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[1] != "200" {
			return nil, fmt.Errorf("%q is not a request with status 200", lines.Text())
		}
		us, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return nil, err
		}
		took = append(took, us/1000)
	}
	if len(took) == 0 {
		return nil, errors.New("no request got a response")
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(math.Ceil(q*float64(len(took))))-1] }
	return values{"requests": float64(len(took)), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999)}, nil
}
