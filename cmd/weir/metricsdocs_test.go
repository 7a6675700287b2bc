package main

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented is a metric in the tables of docs/metrics.md.
type documented struct {
	kind   string
	labels []string
}

var (
	metricRow    = regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| .+ \\|$")
	metricSource = regexp.MustCompile(`(?:NewDesc\(|Name:|options\()\s*"(weir_[a-z_]+)"`)
	adaptiveOf   = regexp.MustCompile(`NewAdaptiveMetrics\("(weir_[a-z_]+)"`)
	adaptiveEach = regexp.MustCompile(`desc\("(_[a-z_]+)"`)
	labelName    = regexp.MustCompile("`([a-z]+)`")
	exposedType  = regexp.MustCompile(`(?m)^# TYPE (weir_[a-z_]+) (\w+)$`)
	exposedLabel = regexp.MustCompile(`([a-z]+)="`)
)

func documentedMetrics(t *testing.T) map[string]documented {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]documented{}
	for _, row := range metricRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := all[row[1]]; twice {
			t.Errorf("docs/metrics.md lists %s twice", row[1])
		}
		of := documented{kind: row[2]}
		for _, label := range labelName.FindAllStringSubmatch(row[3], -1) {
			of.labels = append(of.labels, label[1])
		}
		all[row[1]] = of
	}
	return all
}

// TestMetricsAreDocumented: docs/metrics.md lists the metrics in the sources of the server, and no others.
func TestMetricsAreDocumented(t *testing.T) {
	all, made := documentedMetrics(t), map[string]bool{}
	var prefixes, suffixes []string // of adaptive limits: of routes, and of targets
	err := filepath.WalkDir("../../server", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range metricSource.FindAllStringSubmatch(string(text), -1) {
			made[found[1]] = true
		}
		for _, found := range adaptiveOf.FindAllStringSubmatch(string(text), -1) {
			prefixes = append(prefixes, found[1])
		}
		for _, found := range adaptiveEach.FindAllStringSubmatch(string(text), -1) {
			suffixes = append(suffixes, found[1])
		}
		return err
	})
	for _, prefix := range prefixes {
		for _, suffix := range suffixes {
			made[prefix+suffix] = true
		}
	}
	if err != nil || len(made) < 80 {
		t.Fatalf("%d metrics in the sources: %v", len(made), err)
	}
	for name := range made {
		if _, ok := all[name]; !ok {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
	for name := range all {
		if !made[name] {
			t.Errorf("docs/metrics.md lists %s, which no source has", name)
		}
	}
}

// TestMetricsAreAsDocumented: what a server exposes has the types and labels of docs/metrics.md.
func TestMetricsAreAsDocumented(t *testing.T) {
	all := documentedMetrics(t)
	dir := t.TempDir()
	t.Chdir(dir)
	const text = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0", http: "127.0.0.1:0" }
limits:
  per-client: { store: file, key: client.ip, token_bucket: { rate: 1/h, burst: 40 } }
  queued: { leaky_bucket: { rate: 1000/s, queue: 10 } }
  places: { concurrency: { limit: 2 } }
  trial: { token_bucket: { rate: 1/s, burst: 1 }, shadow: true }
stores: { file: { url: "sqlite:DIR/limits.db" } }
upstreams: { none: { url: "http://127.0.0.1:1", adaptive: {} } }
routes:
  - { match: /queued, upstream: none, limits: [queued] }
  - { match: /, upstream: none, limits: [per-client, places, trial] }
`
	if err := os.WriteFile("metrics.yaml", []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway, admin := served(t, "metrics.yaml")
	get := func(url string) string {
		resp, err := http.Get("http://" + url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for range 50 {
		get(gateway + "/")
		get(gateway + "/queued")
	}
	exposed := get(admin + "/metrics")
	types := exposedType.FindAllStringSubmatch(exposed, -1)
	if len(types) < 30 || !strings.Contains(exposed, "weir_build_info{") || !strings.Contains(exposed, "weir_decision_seconds_bucket{") || !strings.Contains(exposed, `weir_store_call_seconds_count{store="file"} `) {
		t.Fatalf("%d metrics:\n%s", len(types), exposed)
	}
	for _, found := range types {
		name, want := found[1], all[found[1]]
		if want.kind != found[2] {
			t.Errorf("%s is a %s, and docs/metrics.md lists a %q", name, found[2], want.kind)
		}
		line := regexp.MustCompile(`(?m)^` + name + `(?:_bucket|_count|_sum)?(?:\{(.*)\})? `)
		for _, sample := range line.FindAllStringSubmatch(exposed, -1) {
			var labels []string
			for _, l := range exposedLabel.FindAllStringSubmatch(sample[1], -1) {
				if l[1] != "le" {
					labels = append(labels, l[1])
				}
			}
			slices.Sort(labels)
			documented := slices.Clone(want.labels)
			if slices.Sort(documented); !slices.Equal(labels, documented) {
				t.Errorf("%s has the labels %v, and docs/metrics.md lists %v", name, labels, documented)
			}
		}
	}
}
