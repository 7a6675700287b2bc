package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

const monitoring = "../../docs/monitoring/"

// TestRules: promtool accepts the rules, and they do what their tests say.
func TestRules(t *testing.T) {
	tool := program(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "weir.rules.yml"}, {"test", "rules", "weir.rules.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v:\n%s", args, err, out)
		}
	}
}

// TestMetricsAreGoodOnes: promtool finds nothing to say against what the server exposes.
func TestMetricsAreGoodOnes(t *testing.T) {
	w, visit := start(t, observed)
	visit("ann")
	cmd := exec.CommandContext(t.Context(), program(t, "promtool", "prometheus"), "check", "metrics")
	cmd.Stdin = strings.NewReader(get(t, "http://"+w.Admin+"/metrics"))
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "weir_") {
			t.Error(line)
		}
	}
	if err != nil {
		t.Logf("%v: %s", err, out)
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prometheus runs Prometheus with native histograms and our rules, and returns its address.
func prometheus(t *testing.T, target string) string {
	t.Helper()
	path := program(t, "prometheus", "prometheus")
	dir := t.TempDir()
	rules, err := filepath.Abs(monitoring + "weir.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [%q]\nscrape_configs: [{ job_name: weir, static_configs: [{ targets: [%q] }] }]\n", rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--enable-feature=native-histograms", "--log.level=warn")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // its error is the signal
	servers.Poll(t, "Prometheus is ready", func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return "http://" + address
}

// result is the answer to a query.
type result struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric    map[string]string
			Value     []any
			Histogram []any
		}
	}
}

func query(t *testing.T, address, expr string) (r result) {
	t.Helper()
	text := get(t, address+"/api/v1/query?query="+url.QueryEscape(expr))
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// TestPrometheus: a real Prometheus scrapes counters and native histograms; the queries of the dashboard are
// valid, and those of what was used have results.
func TestPrometheus(t *testing.T) {
	w, visit := start(t, observed)
	address := prometheus(t, w.Admin)
	for i := range 300 {
		visit(fmt.Sprint("user", i%50))
	}
	servers.Poll(t, "Prometheus has the counters and a native histogram", func() bool {
		n := query(t, address, `sum(weir_limit_requests_total{limit="per-user"})`)
		h := query(t, address, `weir_decision_seconds`)
		return len(n.Data.Result) == 1 && n.Data.Result[0].Value[1] == "300" && len(h.Data.Result) == 1 && h.Data.Result[0].Histogram != nil
	})
	if r := query(t, address, `up{job="weir"}`); len(r.Data.Result) != 1 || r.Data.Result[0].Value[1] != "1" {
		t.Errorf("%+v", r)
	}
	for _, expr := range dashboard(t) {
		expr = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$limit", ".*").Replace(expr)
		r := query(t, address, expr)
		if r.Status != "success" {
			t.Errorf("%s: %s", expr, r.Error)
		}
		if strings.Contains(expr, `outcome=~"limited|banned"`) {
			servers.Poll(t, "refusals are on the dashboard", func() bool { return len(query(t, address, expr).Data.Result) == 1 })
		}
	}
	if r := get(t, address+"/api/v1/rules"); strings.Contains(r, `"health":"err"`) {
		t.Errorf("a rule fails: %s", r)
	}
}

// dashboard returns the queries of the Grafana dashboard, whose metrics have to be documented.
func dashboard(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(monitoring + "grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	name, ids := regexp.MustCompile(`weir_[a-z_]+`), map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d is there twice, or outside: %+v", p.ID, p.GridPos)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, target.Expr)
			for _, metric := range name.FindAllString(target.Expr, -1) {
				if !strings.Contains(string(page), "| `"+strings.TrimSuffix(metric, "_bucket")+"` |") {
					t.Errorf("docs/metrics.md has no %s", metric)
				}
			}
		}
	}
	if len(all) < 10 {
		t.Errorf("the dashboard has %d queries", len(all))
	}
	return all
}
