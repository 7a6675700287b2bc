package main

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// runWrk runs wrk with one thread against a URL and reads what it prints.
func runWrk(wrk, url string, connections, seconds int) (values, error) {
	out, err := exec.Command(wrk, "-t", "1", "-c", strconv.Itoa(connections), "-d", fmt.Sprintf("%ds", seconds), "--latency", url).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	v, err := parseWrk(string(out))
	if err != nil {
		return nil, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	return v, nil
}

// parseWrk reads the figures from wrk's output: requests and rate; p50 and p99 in milliseconds;
// socket errors and not2xx, if there were any.
func parseWrk(out string) (values, error) {
	v := values{}
	var errs []error
	set := func(name, text string) {
		f, err := strconv.ParseFloat(text, 64)
		errs = append(errs, err)
		v[name] = f
	}
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		switch f := strings.Fields(lines.Text()); {
		case len(f) == 2 && (f[0] == "50%" || f[0] == "99%"):
			d, err := time.ParseDuration(f[1]) // as in 1.25ms
			errs = append(errs, err)
			v["p"+strings.TrimSuffix(f[0], "%")] = float64(d) / float64(time.Millisecond)
		case len(f) == 2 && f[0] == "Requests/sec:":
			set("rate", f[1])
		case len(f) > 3 && f[1] == "requests" && f[2] == "in":
			set("requests", f[0])
		case strings.Contains(lines.Text(), "Non-2xx or 3xx responses:"):
			set("not2xx", f[len(f)-1])
		case strings.Contains(lines.Text(), "Socket errors:"):
			for _, text := range f {
				if n, err := strconv.Atoi(strings.TrimSuffix(text, ",")); err == nil {
					v["errors"] += float64(n)
				}
			}
		}
	}
	for _, name := range []string{"requests", "rate", "p50", "p99"} {
		if _, ok := v[name]; !ok {
			errs = append(errs, fmt.Errorf("it did not say %s", name))
		}
	}
	return v, errors.Join(errs...)
}
