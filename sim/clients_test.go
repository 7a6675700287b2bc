package sim

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
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

// TestClientsOfShadows: of a shadow limit, the report says how many clients it would have limited. Those of its limit and
// of others are not mixed up, also with so many limits that the bits of a client take several words.
func TestClientsOfShadows(t *testing.T) {
	once := weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "strict", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3}}},
		Routes: []policy.Route{{Match: "/a", Limits: []string{"strict"}}, {Match: "/b"}},
	}
	for i := range 70 {
		name := fmt.Sprintf("dry%d", i)
		p.Limits = append(p.Limits, policy.Limit{Name: name, Key: []string{"client.ip"}, Limit: once, Shadow: true})
		if i%2 == 0 {
			p.Routes[0].Limits = append(p.Routes[0].Limits, name)
		}
	}
	p.Routes[1].Limits = []string{"dry69"}
	log := ""
	for client, n := range []int{1, 2, 3, 4, 5} { // of requests for each path
		for range n {
			log += logLine(fmt.Sprintf("10.0.0.%d", client), 0, "/a") + logLine(fmt.Sprintf("10.0.0.%d", client), 0, "/b")
		}
	}
	r, _ := run1(t, Options{Policy: p}, log)
	for _, l := range r.Limits {
		want := int64(0)
		switch {
		case l.Limit == "strict":
			want = 2
		case l.Limit == "dry69" || int(l.Limit[len(l.Limit)-1]-'0')%2 == 0:
			want = 4
		}
		if l.ClientsLimited != want {
			t.Errorf("%s: %d clients, want %d", l.Limit, l.ClientsLimited, want)
		}
	}
	if r.Clients.Limited != 2 || r.Routes[0].ClientsLimited != 2 || r.Routes[1].ClientsLimited != 0 {
		t.Errorf("%+v, %+v", r.Clients, r.Routes)
	}
}
