package redis

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	leasing "github.com/weirflow/weir/lease"
)

// counts are what the nodes have written.
type counts struct {
	hot    []record // admitted of the hot key, in the order in which that was known
	budget [3]int64
	nodes  [leaseNodes][3]int64 // of the hot key

	span  time.Duration // from the beginning to the last answer
	bound int64         // in all of it, and so what there was
	most  float64       // admitted in an interval, in parts of its bound
	worst string
}

// counted reads the ledgers. What was to be silent is held to it.
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

// bucket checks the bounds of a bucket. In the whole time nothing was held when it began: Burst + r·D, and a Burst more for each
// loss. In an interval r·d more, which is less than the nodes may hold. A call is in an interval if it began and ended there.
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

// windows checks a window's bound, which is its own: none of them has more than Limit. They are those of the server's clock, which is that of all.
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

// calls are those that were answered.
func calls(n [3]int64) float64 { return float64(n[wasAdmitted] + n[wasRefused]) }

// fair checks that a node that asks for less than an even share gets it: half of it at least, whatever the machine does, where it would get half if
// calls were admitted as they come. Where all ask for the same, none is far below the others. And most of what there was is used, where nothing
// else happened.
func (f *fleet) fair(t *testing.T, c *counts, calm bool) {
	all := 0.
	for i, n := range c.nodes {
		all += calls(n)
		least := .5
		if !f.skewed || i == 0 || f.task.Window { // a window that is used up is so for all
			least = .2
		}
		const few = 20 // say nothing
		if part := float64(n[wasAdmitted]) / calls(n); calls(n) >= few && part < least {
			t.Errorf("node %d was admitted %.2f of its %.0f calls", i, part, calls(n))
		}
	}
	if most := min(all, float64(c.bound)); calm && float64(len(c.hot)) < most/2 {
		t.Errorf("%d admitted, where there was enough for %.0f", len(c.hot), most)
	}
}

// line is the row of the table, but for the budget.
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
