package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
)

// suggestClients is how many clients Suggest tells apart; of more, a sample is counted.
const suggestClients = 128 << 10

// shortestLog is how long logs have to be for a suggestion to be sure: of the slowest rate, a bucket gets a few
// tokens back in this time.
const shortestLog = int64(time.Hour)

// A Suggestion is the result of Suggest.
type Suggestion struct {
	Reading
	Clients  int64 // distinct clients
	Bots     int64 // of them: programs that read the site
	Monitors int64 // of them: programs that check whether it works
	Sampled  bool  // there were so many clients that these are estimates from a sample
	Short    bool  // the logs are shorter than an hour: they do not show what clients do in other hours
	Named    []NamedClients
	Limits   []SuggestedLimits // one for each quantile
	Heat     Heat
}

// NamedClients are bots or monitors of one name.
type NamedClients struct {
	Name     string // what they call themselves, or what shows what they are
	Kind     string // bot or monitor
	Clients  int64
	Requests int64
	Burst    int64 // what the one that needs most would need at the rate of the first suggestion
}

// SuggestedLimits are limits that a share of the clients would never notice.
type SuggestedLimits struct {
	Percent float64
	Sure    bool        // there are enough clients, in logs that are not Short, to expect the same of other days
	Front   []Suggested // ascending rates and descending bursts: none is better than another in both
	Best    int         // in Front: with it, a client can send the fewest requests in a minute
	Alone   int64       // the burst that would do for people at the rate of Best; 0 if it is the same
}

// Suggested is a token bucket for each client.
type Suggested struct {
	Rate    string
	Burst   int64
	Limited int64 // clients that it would have limited
	People  int64 // of them: those that are neither bots nor monitors
	every   int64
}

// Heat is the share of clients that a token bucket of a rate and a burst would have limited, from 0 to 1.
type Heat struct {
	Rates  []string
	Bursts []int64
	Share  [][]float64 // by rate and burst
}

// Suggest finds token buckets for each client that shares of the clients, in percent, would never have
// noticed. With Options.Policy, requests count for which a route with a limit matches; without routes, all do.
func Suggest(ctx context.Context, o Options, percents []float64) (*Suggestion, error) {
	o.Decisions = nil
	for _, p := range percents {
		if !(p >= 50 && p < 100) {
			return nil, fmt.Errorf("%v %% of the clients: write a share of at least 50 and below 100", p)
		}
	}
	s := &suggest{o: &o, percents: percents}
	defer s.close()
	l := layoutFor(o.Policy)
	l.profiles = true
	readErr, err := runPass(ctx, &o, l, s)
	if err != nil {
		return nil, err
	}
	return s.result, readErr
}

// suggest is the pass of Suggest.
type suggest struct {
	o        *Options
	percents []float64
	engine   *policy.Engine
	visitors *clientTable[visitor]
	result   *Suggestion
}

func (s *suggest) start(run *runner) (err error) {
	s.close()
	s.visitors, s.result = newClientTable[visitor](suggestClients), new(Suggestion)
	if len(s.o.Policy.Routes) > 0 {
		s.engine, err = newEngine(s.o.Policy, run.clock, policy.Options{})
	}
	return err
}

func (s *suggest) close() {
	if s.engine != nil {
		s.engine.Close()
		s.engine = nil
	}
}

func (s *suggest) decide(q *query) error {
	if s.engine != nil {
		m := s.engine.Match(q.req)
		if m.Route < 0 || len(s.o.Policy.Routes[m.Route].Limits) == 0 {
			return nil
		}
	}
	s.result.request(q.at)
	visit := q.visit()
	if v := s.visitors.of(visit.client); v != nil {
		v.add(&visit)
	}
	return nil
}

// end makes the suggestions.
func (s *suggest) end(u *Reading) error {
	r := s.result
	r.read(u)
	r.Sampled = s.visitors.halvings > 0
	var all, people []*visitor
	named := make(map[string]*NamedClients)
	members := make(map[string][]*visitor)
	for _, v := range s.visitors.all {
		all = append(all, v)
		k, name := v.kind()
		switch k {
		case person:
			people = append(people, v)
			continue
		case bot:
			r.Bots++
		case monitor:
			r.Monitors++
		}
		n := named[name]
		if n == nil {
			n = &NamedClients{Name: name, Kind: k.String()}
			named[name] = n
		}
		n.Clients++
		n.Requests += v.requests
		members[name] = append(members[name], v)
	}
	t := s.visitors
	r.Clients, r.Bots, r.Monitors = t.scaled(len(all)), t.scaled(int(r.Bots)), t.scaled(int(r.Monitors))
	r.Heat = heatOf(all)
	if len(all) == 0 {
		return nil
	}
	needs := [2][][]int64{needsOf(all), needsOf(people)}
	r.Short = r.Last-r.First < shortestLog
	for _, percent := range s.percents {
		of := suggestFor(percent, needs, t)
		of.Sure = of.Sure && !r.Short
		r.Limits = append(r.Limits, of)
	}
	best := r.Limits[0].Front[r.Limits[0].Best]
	for name, n := range named {
		for _, v := range members[name] {
			for i := range suggestRates {
				if suggestRates[i].text == best.Rate {
					n.Burst = max(n.Burst, v.burst(i))
				}
			}
		}
		n.Clients = t.scaled(int(n.Clients))
		r.Named = append(r.Named, *n)
	}
	slices.SortFunc(r.Named, func(a, b NamedClients) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name))
	})
	return nil
}

// needsOf returns for each rate the bursts that clients need, sorted.
func needsOf(clients []*visitor) [][]int64 {
	needs := make([][]int64, len(suggestRates))
	for i := range suggestRates {
		for _, v := range clients {
			needs[i] = append(needs[i], v.burst(i))
		}
		slices.Sort(needs[i])
	}
	return needs
}

// over returns how many of sorted values are above a bound.
func over(sorted []int64, bound int64) int {
	i, _ := slices.BinarySearch(sorted, bound+1)
	return len(sorted) - i
}

// suggestFor finds the limits for a share of the clients. needs has those of all clients, and of people.
func suggestFor(percent float64, needs [2][][]int64, t *clientTable[visitor]) SuggestedLimits {
	s := SuggestedLimits{Percent: percent, Sure: true}
	type point struct{ burst, alone int64 }
	least := int64(math.MaxInt64)
	var points []point
	for i, rate := range suggestRates {
		var p point
		for of, sorted := range [][]int64{needs[0][i], needs[1][i]} {
			if len(sorted) == 0 {
				continue
			}
			spare, sure := spareClients(len(sorted), 1-percent/100)
			s.Sure = s.Sure && sure
			burst := roundUp(sorted[len(sorted)-1-spare])
			if p.burst = max(p.burst, burst); of == 1 {
				p.alone = burst
			}
		}
		if p.burst >= least { // a lower rate with no larger burst admits as many
			continue
		}
		least = p.burst
		points = append(points, p)
		s.Front = append(s.Front, Suggested{
			Rate: rate.text, Burst: p.burst, every: rate.every,
			Limited: t.scaled(over(needs[0][i], p.burst)), People: t.scaled(over(needs[1][i], p.burst)),
		})
	}
	inMinute := func(i int) float64 { return float64(s.Front[i].Burst) + 60e9/float64(s.Front[i].every) }
	for i := range s.Front {
		if inMinute(i) < inMinute(s.Best) {
			s.Best = i
		}
	}
	if alone := points[s.Best].alone; alone > 0 && alone < s.Front[s.Best].Burst {
		s.Alone = alone
	}
	return s
}

// spareClients returns how many of n clients may be limited, so that with 95 % confidence at most a share of all
// clients like them is. Where n is too small for that, it is none, and sure is false.
func spareClients(n int, share float64) (spare int, sure bool) {
	// the chance that at most k of n clients are among the share that may be limited
	chance, term := 0.0, math.Exp(float64(n)*math.Log1p(-share))
	spare = -1
	for k := 0; k < n; k++ {
		if chance += term; chance > 0.05 {
			break
		}
		spare = k
		term *= float64(n-k) / float64(k+1) * share / (1 - share)
		if term == 0 && chance == 0 { // too many clients for this arithmetic: by the normal distribution
			mean := float64(n) * share
			return max(0, int(mean-1.645*math.Sqrt(mean*(1-share)))), true
		}
	}
	return max(spare, 0), spare >= 0
}

// roundUp returns a number with at most two digits that are not zero, the last of them even or five, and at least as
// large.
func roundUp(n int64) int64 {
	power := int64(1)
	for n > 99*power && power < math.MaxInt64/100 {
		power *= 10
	}
	n = (n + power - 1) / power
	for n > 12 && n%5 != 0 && (n > 30 || n%2 != 0) {
		n++
	}
	return n * power
}

// heatOf returns the share of clients that each combination would have limited.
func heatOf(all []*visitor) (h Heat) {
	if len(all) == 0 {
		return h
	}
	most := int64(1)
	for _, v := range all {
		most = max(most, v.burst(len(suggestRates)/2))
	}
	h.Bursts = steps(1, max(roundUp(most), 2))
	needs := needsOf(all)
	for i, rate := range suggestRates {
		h.Rates = append(h.Rates, rate.text)
		var row []float64
		for _, b := range h.Bursts {
			row = append(row, float64(over(needs[i], b))/float64(len(all)))
		}
		h.Share = append(h.Share, row)
	}
	return h
}

// ParsePercents reads shares of clients, in percent, separated by commas.
func ParsePercents(text string) (all []float64, err error) {
	for word := range strings.SplitSeq(text, ",") {
		p, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(word), "%"), 64)
		if err != nil || !(p >= 50 && p < 100) {
			return nil, fmt.Errorf("%q is no share of clients: write percents of at least 50 and below 100, like 99,99.9", word)
		}
		all = append(all, p)
	}
	return all, nil
}
