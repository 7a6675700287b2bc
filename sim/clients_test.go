package sim

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClientsAndHours: distinct clients, their peaks and the hours equal counts made from the lines and the
// decisions.
func TestClientsAndHours(t *testing.T) {
	for _, file := range []string{"testdata/nasa-1995-08-01.clf.log", "testdata/elastic-2015-05.combined.log"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, decisions := run1(t, Options{Policy: perClient(tenAMinute)}, string(text))
		lines, answers := strings.Split(string(text), "\n"), strings.Split(decisions, "\n")
		seen, limited, hours := map[string]bool{}, map[string]bool{}, map[string]int64{}
		peaks := [3]map[string]map[string]int64{{}, {}, {}}
		for i, m := range regexp.MustCompile(`(?m)^(\S+) .*?\[([^\]]+)\]`).FindAllStringSubmatch(string(text), -1) {
			at, err := time.Parse(clockText, m[2])
			if err != nil || !strings.Contains(lines[i], m[2]) {
				t.Fatal(err, i)
			}
			seen[m[1]] = true
			if strings.Contains(answers[i], "deny") {
				limited[m[1]] = true
				hours[at.UTC().Format("2006-01-02 15")]++
			}
			for k, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02 15"} {
				if peaks[k][m[1]] == nil {
					peaks[k][m[1]] = map[string]int64{}
				}
				peaks[k][m[1]][at.UTC().Format(layout)]++
			}
		}
		if r.Clients.Seen != int64(len(seen)) || r.Clients.Limited != int64(len(limited)) || r.Limits[0].ClientsLimited != int64(len(limited)) || r.Routes[0].ClientsLimited != int64(len(limited)) || len(limited) == 0 {
			t.Errorf("%s: %+v; counted %d clients, %d limited", file, r.Clients, len(seen), len(limited))
		}
		first, worst := "", ""
		for h, n := range hours {
			if first == "" || h < first {
				first = h
			}
			if worst == "" || n > hours[worst] || n == hours[worst] && h < worst {
				worst = h
			}
		}
		if got := r.FirstHour.Start.Format("2006-01-02 15"); got != first || r.FirstHour.Limited != hours[first] {
			t.Errorf("%s: first hour %+v, want %s with %d", file, r.FirstHour, first, hours[first])
		}
		if got := r.WorstHour.Start.Format("2006-01-02 15"); got != worst || r.WorstHour.Limited != hours[worst] {
			t.Errorf("%s: worst hour %+v, want %s with %d", file, r.WorstHour, worst, hours[worst])
		}
		for k := range peaks {
			var all []int64
			for _, windows := range peaks[k] {
				most := int64(0)
				for _, n := range windows {
					most = max(most, n)
				}
				all = append(all, most)
			}
			slices.Sort(all)
			want := Quantiles{all[(len(all)+1)/2-1], all[(len(all)*9+9)/10-1], all[(len(all)*99+99)/100-1], all[(len(all)*999+999)/1000-1], all[len(all)-1]}
			if r.Clients.Peaks[k] != want {
				t.Errorf("%s: in one %s %+v, want %+v", file, peakNames[k], r.Clients.Peaks[k], want)
			}
		}
	}
}

// TestClientTableSamples: with more clients than fit, those that are kept are a sample of all.
func TestClientTableSamples(t *testing.T) {
	table := newClientTable[activity](100)
	for range 2 {
		for i := range 10_000 {
			if a := table.of("10.0." + statusText(int32(i/100)) + "." + statusText(int32(i%100))); a != nil {
				a.add(int64(i))
			}
		}
	}
	n := table.scaled(len(table.all))
	if len(table.all) > 100 || len(table.all) < 25 || n < 5000 || n > 20_000 {
		t.Errorf("%d are kept, which stand for %d", len(table.all), n)
	}
	for client, a := range table.all {
		if a.requests < 1 || a.requests > 2 {
			t.Errorf("%s: %+v", client, a)
		}
	}
}
