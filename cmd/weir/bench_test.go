package main

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBench: every algorithm, the table of keys and a store have figures, and the keys in the
// store expire within a minute.
func TestBench(t *testing.T) {
	store := filepath.Join(t.TempDir(), "limits.db")
	code, out, errs := weir(t, "", "bench", "--json", "--rounds", "1", "--round", "1ms", "--keys", "1000", "--store", "sqlite:"+store)
	if code != exitDone || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var report benchReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Limiters) != len(benchLimits())+1 || report.Machine.Threads < 1 || report.Machine.Go == "" {
		t.Errorf("%+v", report)
	}
	for _, r := range report.Limiters {
		if r.Alone <= 0 || r.Together <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if k := report.Keyed; k == nil || k.Keys != 1000 || k.Alone <= 0 || k.Together <= 0 {
		t.Errorf("%+v", k)
	}
	if report.Store == nil || len(report.Store.Rows) != 3 {
		t.Fatalf("%+v", report.Store)
	}
	for _, r := range report.Store.Rows {
		if r.P50 <= 0 || r.P99 < r.P50 || r.PerSecond <= 0 {
			t.Errorf("%+v", r)
		}
	}
	db, err := sql.Open("sqlite", store)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM states WHERE expires > ?", time.Now().Add(time.Minute).UnixNano()).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d keys stay in the store: %v", left, err)
	}
}

// TestBenchText: the tables have the names of what was measured, and no line of what was not.
func TestBenchText(t *testing.T) {
	code, out, errs := weir(t, "", "bench", "--rounds", "1", "--round", "1ms", "--keys", "0")
	if code != exitDone || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, b := range benchLimits() {
		if !strings.Contains(out, "\n"+b.name+" ") {
			t.Errorf("%s is missing in\n%s", b.name, out)
		}
	}
	if strings.Contains(out, "keys") || strings.Contains(out, "store") {
		t.Errorf("%s", out)
	}
}

// TestBenchUsage: what cannot be measured is said with what to write instead.
func TestBenchUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--rounds 0":                    "write 1 to 10000",
		"--round 1us":                   "write 1ms to 1m0s",
		"--keys -1":                     "write 0 to 100000000",
		"--store nowhere:// --rounds 1": "is the scheme of no store",
	} {
		code, _, errs := weir(t, "", append([]string{"bench", "--keys", "0", "--round", "1ms"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", args, code, errs)
		}
	}
}

// TestThousands: numbers of any length have their commas.
func TestThousands(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 12345678: "12,345,678"} {
		if got := thousands(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}
