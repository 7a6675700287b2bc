package redis

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	leasing "github.com/weirflow/weir/lease"
)

// counts are sums of the ledgers of all nodes.
type counts struct {
	hot    []record // admissions of the hot key, in the order in which they were known
	budget [3]int64
	nodes  [leaseNodes][3]int64 // of the hot key

	span  time.Duration // from the beginning to the last reply
	bound int64         // the bound of the whole time
	most  float64       // admitted in an interval, relative to its bound
	worst string
}

// counted reads the ledgers, and checks the silences.
func (f *fleet) counted(t *testing.T) *counts {
	c := new(counts)
	for i, path := range f.files {
		all, err := readLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		broken := make([]int, len(f.silent))
		for _, e := range all {
			c.span = max(c.span, time.Duration(e.after-f.began))
			for j, s := range f.silent {
				if e.before <= s.from || e.after >= s.to || s.node >= 0 && s.node != i {
					continue
				}
				if e.outcome == wasAdmitted {
					broken[j]++
				}
			}
			if e.key == 1 {
				c.budget[e.outcome]++
				continue
			}
			if c.nodes[i][e.outcome]++; e.outcome == wasAdmitted {
				c.hot = append(c.hot, e)
			}
		}
		for j, n := range broken {
			if n > 0 {
				t.Errorf("node %d admitted %d calls, although %s", i, n, f.silent[j].why)
			}
		}
	}
	if len(c.hot) == 0 {
		t.Fatal("nothing was admitted")
	}
	slices.SortFunc(c.hot, func(a, b record) int { return cmp.Compare(a.after, b.after) })
	return c
}

// bucket checks the bounds of a bucket. No tokens are held when the whole time begins: Burst + r·D,
// and a Burst more for each loss. In an interval it is r·d more, which is less than the nodes may
// hold. A call is in an interval if it began and ended there.
func (f *fleet) bucket(t *testing.T, c *counts) {
	perNano := float64(hotBucket.Rate.N) / float64(hotBucket.Rate.Per)
	burst := float64(hotBucket.Burst * int64(1+f.losses))
	c.bound = int64(burst + perNano*float64(c.span+time.Microsecond))
	if got := int64(len(c.hot)); got > c.bound {
		t.Errorf("%d admitted in %v; the bound is %d", got, c.span, c.bound)
	}
	late := min(perNano*float64(leasing.DefaultLifetime), leaseNodes*mostHeld)
	const grid = 50 * time.Millisecond
	for from := f.began; from < f.began+int64(c.span); from += int64(grid) {
		n := 0.
		for _, e := range c.hot {
			if e.before < from {
				continue
			}
			n++
			bound := burst + late + perNano*float64(e.after-from+1000)
			if part := n / bound; part > c.most {
				c.most = part
				c.worst = fmt.Sprintf("%.0f admitted from %v on in %v; the bound is %.0f", n, time.Duration(from-f.began), time.Duration(e.after-from), bound)
			}
		}
	}
	if c.most > 1 {
		t.Error(c.worst)
	}
}

// windows checks a window's bound: none has more than Limit. The windows are those of the server's
// clock, which all share.
func (f *fleet) windows(t *testing.T, c *counts) {
	window := func(at int64) int64 { return at / int64(hotWindow.Window) }
	c.bound = hotWindow.Limit * (window(f.began+int64(c.span)) - window(f.began) + 1)
	in := map[int64]int64{}
	for _, e := range c.hot {
		if w := window(e.before); w == window(e.after) {
			in[w]++
		}
	}
	for w, n := range in {
		if c.most = max(c.most, float64(n)/float64(hotWindow.Limit)); n > hotWindow.Limit {
			t.Errorf("%d admitted in the window from %v on; the bound is %d", n, time.Unix(0, w*int64(hotWindow.Window)), hotWindow.Limit)
		}
	}
	if got := int64(len(c.hot)); got > c.bound {
		t.Errorf("%d admitted in %v; the bound is %d", got, c.span, c.bound)
	}
}

// calls returns the number of calls with a decision.
func calls(n [3]int64) float64 { return float64(n[wasAdmitted] + n[wasRefused]) }

// fair checks that a node whose demand is below an even share gets at least half of it, however
// busy the machine is. If all have the same demand, no node gets far less than the others. If there
// was no fault, most of the limit is used.
func (f *fleet) fair(t *testing.T, c *counts, calm bool) {
	all := 0.
	for i, n := range c.nodes {
		all += calls(n)
		least := .5
		if !f.skewed || i == 0 || f.task.Window { // a window that is used up refuses all nodes
			least = .2
		}
		const few = 20 // too few to compare
		if part := float64(n[wasAdmitted]) / calls(n); calls(n) >= few && part < least {
			t.Errorf("node %d was admitted %.2f of its %.0f calls", i, part, calls(n))
		}
	}
	if most := min(all, float64(c.bound)); calm && float64(len(c.hot)) < most/2 {
		t.Errorf("%d admitted, where there was enough for %.0f", len(c.hot), most)
	}
}

// line is the row of the table, without the budget.
func (c *counts) line(total leasing.Stats) string {
	all, least, most := 0., 1., 0.
	for i, n := range c.nodes {
		if all += calls(n); i > 0 {
			part := float64(n[wasAdmitted]) / max(calls(n), 1)
			least, most = min(least, part), max(most, part)
		}
	}
	hot := c.nodes[0]
	return fmt.Sprintf("%.0f | %d | %d | %.1f %% | %.0f %% | %.0f | %.2f | %.2f to %.2f", all, len(c.hot), c.bound, 100*float64(len(c.hot))/float64(c.bound),
		100*c.most, (all+float64(c.budget[wasAdmitted]+c.budget[wasRefused]))/float64(max(total.RoundTrips, 1)), float64(hot[wasAdmitted])/max(calls(hot), 1), least, most)
}
