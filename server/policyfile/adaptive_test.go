package policyfile

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/policy"
)

// withAdaptive returns a policy with an adaptive limit of an upstream.
func withAdaptive(setting string) []byte {
	return []byte("upstreams: { app: { url: \"http://127.0.0.1:9000\", adaptive: " + setting + " } }\nroutes: [{ match: /, upstream: app }]\n")
}

// TestAdaptive: each algorithm is read with all its parameters, of an upstream and of a route.
func TestAdaptive(t *testing.T) {
	for setting, want := range map[string]policy.Adaptive{
		"{}":                       {On: true},
		"{ queue: { length: 5 } }": {On: true, Queue: adaptive.Queue{Length: 5}},
		"{ aimd: {}, queue: { length: 9, wait: 50ms, order: adaptive_lifo } }": {On: true, Algorithm: adaptive.AIMD{}, Queue: adaptive.Queue{Length: 9, Wait: 50 * time.Millisecond, Order: adaptive.AdaptiveLIFO}},
		"{ knee: {} }": {On: true, Algorithm: adaptive.Knee{}},
		"{ knee: { initial: 5, min: 2, max: 30 } }":                             {On: true, Algorithm: adaptive.Knee{Initial: 5, Min: 2, Max: 30}},
		"{ aimd: { max: 50, backoff: 0.8, timeout: 1500ms } }":                  {On: true, Algorithm: adaptive.AIMD{Max: 50, Backoff: 0.8, Timeout: 1500 * time.Millisecond}},
		"{ vegas: { alpha: 2, beta: 4.5, smoothing: 0.5, probe: 10 } }":         {On: true, Algorithm: adaptive.Vegas{Alpha: 2, Beta: 4.5, Smoothing: 0.5, Probe: 10}},
		"{ gradient2: { queue: 2, window: 100, tolerance: 2, smoothing: 0.1 }}": {On: true, Algorithm: adaptive.Gradient2{Queue: 2, Window: 100, Tolerance: 2, Smoothing: 0.1}},
		"{ bbr: {} }": {On: true, Algorithm: adaptive.BBR{}},
		"{ bbr: { window: 5s, buckets: 50, cool_off: 2s, thresholds: { cpu: 0.7, memory: off, disk_queue: 3, scheduler_latency: 10ms } } }": {On: true, Algorithm: adaptive.BBR{
			Window: 5 * time.Second, Buckets: 50, CoolOff: 2 * time.Second, Thresholds: signals.Thresholds{CPU: 0.7, Memory: -1, DiskQueue: 3, SchedulerLatency: 0.01}}},
	} {
		file, err := Parse("policy.yaml", withAdaptive(setting))
		if err != nil {
			t.Errorf("%s: %v", setting, err)
			continue
		}
		if got := file.Policy.Upstreams[0].Adaptive; got != want {
			t.Errorf("%s: %+v, want %+v", setting, got, want)
		}
		file, err = Parse("policy.yaml", []byte("routes: [{ match: /, respond: { status: 200 }, adaptive: "+setting+" }]\n"))
		if err != nil || file.Policy.Routes[0].Adaptive != want {
			t.Errorf("%s of a route: %+v, %v", setting, file.Policy.Routes, err)
		}
		again, err := Parse("policy.yaml", withAdaptive(want.String()))
		if err != nil || again.Policy.Upstreams[0].Adaptive.String() != want.String() {
			t.Errorf("%s is written as %s, which is read as %v, %v", setting, want, again, err)
		}
	}
}

// TestPriorities: priorities are read, and errors in them have a place and a fix.
func TestPriorities(t *testing.T) {
	const text = `
trusted_proxies: [10.0.0.0/8]
plans: { from: [header.X-Plan], default: free, unknown: default }
priorities: { header: X-Priority, plans: { free: sheddable, pro: critical_plus }, per_customer: true }
routes: [{ match: /, respond: { status: 200 }, adaptive: {}, priority: sheddable_plus }]
`
	file, err := Parse("policy.yaml", []byte(text))
	if err != nil || len(file.Problems) > 0 {
		t.Fatal(err, file.Problems)
	}
	want := policy.Priorities{Header: "X-Priority", Plans: []policy.PlanPriority{{Plan: "free", Priority: "sheddable"}, {Plan: "pro", Priority: "critical_plus"}}, PerCustomer: true}
	if got := file.Policy.Priorities; !reflect.DeepEqual(got, want) || file.Policy.Routes[0].Priority != "sheddable_plus" {
		t.Errorf("%+v, and of the route %q", got, file.Policy.Routes[0].Priority)
	}
	for from, c := range map[string]struct{ to, want string }{
		"sheddable_plus":  {"shedable", "policy.yaml:5:72: error: \"shedable\" is not known here\n\tfix: did you mean sheddable?"},
		"free: sheddable": {"free: low", "policy.yaml:4:50: error: \"low\" is not known here\n\tfix: known: critical_plus, critical, sheddable_plus, sheddable"},
		"X-Priority":      {"'a b'", "policy.yaml:4:23: error: \"a b\" is not the name of a header field\n\tfix: write it like X-Priority"},
		"adaptive: {}":    {"adaptive: { queue: {} }", "policy.yaml:5:60: error: length is missing: How many requests may wait\n\tfix: length: 20"},
	} {
		_, err := Parse("policy.yaml", []byte(strings.Replace(text, from, c.to, 1)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n%v\nwant\n%s", c.to, err, c.want)
		}
	}
}

// TestAdaptiveErrors: each says where, and what to write instead.
func TestAdaptiveErrors(t *testing.T) {
	for setting, want := range map[string]string{
		"true":                              "policy.yaml:1:61: error: this is true or false, and must be a map\n\tfix: adaptive: {}",
		"knee":                              "policy.yaml:1:61: error: this is a text, and must be a map\n\tfix: adaptive: { knee: {} }",
		"{ knee: {}, vegas: {} }":           "policy.yaml:1:73: error: adaptive has knee and vegas\n\tfix: keep one of them",
		"{ vega: {} }":                      "policy.yaml:1:63: error: there is no key \"vega\" here\n\tfix: did you mean vegas?",
		"{ initial: 5 }":                    "policy.yaml:1:63: error: initial is a parameter of an algorithm, and stands beside it\n\tfix: adaptive: { knee: { initial: 5 } }",
		"{ knee: { initial: 0 } }":          "policy.yaml:1:80: error: 0 is not a whole number of at least 1\n\tfix: write at least 1, or take it out",
		"{ knee: { min: 30, max: 10 } }":    "policy.yaml:1:85: error: 10 is not within Min (30) and 2097151\n\tfix: change it, or take it out for its default",
		"{ aimd: { timeout: 5 } }":          "policy.yaml:1:80: error: this is a number, and must be a text\n\tfix: timeout: 5s",
		"{ aimd: { timeout: soon } }":       "policy.yaml:1:80: error: \"soon\" is not a duration above 0\n\tfix: timeout: 5s",
		"{ aimd: { backoff: 1.5 } }":        "policy.yaml:1:80: error: 1.5 is not from 0.5 up to but not including 1\n\tfix: change it, or take it out for its default",
		"{ gradient2: { tolerance: high }}": "policy.yaml:1:87: error: this is a text, and must be a number\n\tfix: Latency up to so many times the average does not lower the limit. default: 1.5",
		"[]":                                "policy.yaml:1:51: error: this is a list, and must be a map\n\tfix: adaptive: {}",
		"{ queue: [] }":                     "policy.yaml:1:63: error: this is a list, and must be a map\n\tfix: queue: { length: 20, wait: 100ms }",
		"{ knee: { MAX: 5 } }":              "policy.yaml:1:71: error: there is no key \"MAX\" here\n\tfix: did you mean max?",
		"{ knee: { max: 1e2 } }":            "policy.yaml:1:76: error: this is a text, and must be a whole number\n\tfix: max: 100",
		"{ knee: { max: 1.5 } }":            "policy.yaml:1:76: error: this is a number, and must be a whole number\n\tfix: max: 2",
		"{ aimd: { timeout: 5000 } }":       "policy.yaml:1:80: error: this is a number, and must be a text\n\tfix: timeout: 5000ms, or 5000s",
		"{ cpu: 0.7 }":                      "policy.yaml:1:63: error: cpu is a threshold of bbr, and stands beside them\n\tfix: adaptive: { bbr: { thresholds: { cpu: 0.7 } } }",
		"{ bbr: { window: 1ms } }":          "policy.yaml:1:78: error: 1ms is not within 100ms and 1h\n\tfix: change it, or take it out for its default",

		"{ bbr: { thresholds: { cpu: 80% } } }":                "policy.yaml:1:89: error: \"80%\" is not a level\n\tfix: write cpu: 0.8, or off",
		"{ bbr: { thresholds: { cpu: 80 } } }":                 "policy.yaml:1:89: error: 80 is above 1, and the level is a share of at most 1\n\tfix: write cpu: 0.8, or off",
		"{ bbr: { thresholds: { gc: 0 } } }":                   "policy.yaml:1:88: error: 0 is not a number above 0\n\tfix: write gc: 0.9, or off",
		"{ bbr: { thresholds: { scheduler_latency: 0.02 } } }": "policy.yaml:1:103: error: this is a number, and must be a text\n\tfix: scheduler_latency: 20ms",
		"{ bbr: { thresholds: { scheduler_latency: on } } }":   "policy.yaml:1:103: error: \"on\" is not a level\n\tfix: write scheduler_latency: 10ms, or off",
	} {
		_, err := Parse("policy.yaml", withAdaptive(setting))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || err.Error() != want {
			t.Errorf("%s:\n%v\nwant\n%s", setting, err, want)
		}
	}
}

// TestAdaptiveSchema: the schema has the parameters that the algorithms have.
func TestAdaptiveSchema(t *testing.T) {
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct{ Properties map[string]any }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	of := schema.Defs["adaptive"].Properties
	for _, name := range policy.AdaptiveAlgorithms() {
		want := slices.Sorted(slices.Values(policy.AdaptiveFields(name)))
		if got := slices.Sorted(maps.Keys(of[name].Properties)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	thresholds, _ := of["bbr"].Properties["thresholds"].(map[string]any)
	known, _ := thresholds["properties"].(map[string]any)
	if got, want := slices.Sorted(maps.Keys(known)), slices.Sorted(slices.Values(policy.ThresholdNames())); !slices.Equal(got, want) {
		t.Errorf("thresholds: %v, want %v", got, want)
	}
}
