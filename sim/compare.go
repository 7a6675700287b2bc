package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weirflow/weir/policy"
)

// compareClients is how many clients Compare tells apart; of more, a sample is counted.
const compareClients = 512 << 10

// A Comparison is the result of Compare. A is Options.Policy, B the other.
type Comparison struct {
	Reading
	Outcomes [3][3]int64 // requests, by what A did, and by what B did: admitted, delayed, limited
	Clients  int64
	OnlyA    int64 // clients that only A limited
	OnlyB    int64
	Both     int64
	Sampled  bool // there were so many clients that these are estimates from a sample
	Most     []ComparedClient
	Missing  []policy.MissingPart // parts of keys that no request had, of both
}

// A ComparedClient is one that the policies treat differently.
type ComparedClient struct {
	Client             string
	Requests           int64
	LimitedA, LimitedB int64
	DelayedA, DelayedB int64
}

// differs returns for how many more requests one of the policies limits or delays the client.
func (c *ComparedClient) differs() int64 {
	return max(c.LimitedA-c.LimitedB, c.LimitedB-c.LimitedA) + max(c.DelayedA-c.DelayedB, c.DelayedB-c.DelayedA)
}

// Compare runs the same requests through two policies: Options.Policy, and another.
func Compare(ctx context.Context, o Options, other policy.Policy) (*Comparison, error) {
	o.Decisions = nil
	c := &compare{policies: [2]policy.Policy{o.Policy, other}}
	defer c.close()
	both := o.Policy
	both.Limits = append(slices.Clip(both.Limits), other.Limits...)
	both.Upstreams = append(slices.Clip(both.Upstreams), other.Upstreams...)
	both.Routes = append(slices.Clip(both.Routes), other.Routes...)
	readErr, err := runPass(ctx, &o, layoutFor(both), c)
	if err != nil {
		return nil, err
	}
	return c.result, readErr
}

// compare is the pass of Compare.
type compare struct {
	policies [2]policy.Policy
	run      *runner
	engines  [2]*policy.Engine
	clients  *clientTable[ComparedClient]
	result   *Comparison
}

func (c *compare) start(run *runner) (err error) {
	c.close()
	c.run, c.clients, c.result = run, newClientTable[ComparedClient](compareClients), new(Comparison)
	for i, p := range c.policies {
		if c.engines[i], err = newEngine(p, run.clock, policy.Options{Parts: true, MaxKeys: unbounded}); err != nil {
			return err
		}
	}
	return nil
}

func (c *compare) close() {
	for i, e := range c.engines {
		if e != nil {
			e.Close()
		}
		c.engines[i] = nil
	}
}

func (c *compare) decide(q *query) error {
	c.result.request(q.at)
	var did [2]int
	for i, e := range c.engines {
		v, err := c.run.decide(e, q)
		if err != nil {
			return err
		}
		switch v.Outcome {
		case policy.Deny, policy.Invalid:
			did[i] = 2
		case policy.Delay:
			did[i] = 1
		}
	}
	c.result.Outcomes[did[0]][did[1]]++
	if client := c.clients.of(q.req.Client); client != nil {
		client.Requests++
		for i, counts := range [2][2]*int64{{&client.DelayedA, &client.LimitedA}, {&client.DelayedB, &client.LimitedB}} {
			if did[i] > 0 {
				*counts[did[i]-1]++
			}
		}
	}
	return nil
}

func (c *compare) end(u *Reading) error {
	r := c.result
	r.read(u)
	onlyA, onlyB, both := 0, 0, 0
	var most []ComparedClient
	for name, client := range c.clients.all {
		switch a, b := client.LimitedA > 0, client.LimitedB > 0; {
		case a && b:
			both++
		case a:
			onlyA++
		case b:
			onlyB++
		}
		if client.differs() > 0 {
			client.Client = name
			most = append(most, *client)
		}
	}
	slices.SortFunc(most, func(a, b ComparedClient) int {
		return cmp.Or(cmp.Compare(b.differs(), a.differs()), strings.Compare(a.Client, b.Client))
	})
	r.Most = most[:min(len(most), mostKeys)]
	t := c.clients
	r.Clients, r.OnlyA, r.OnlyB, r.Both, r.Sampled = t.scaled(len(t.all)), t.scaled(onlyA), t.scaled(onlyB), t.scaled(both), t.halvings > 0
	for _, e := range c.engines {
		for _, m := range e.Missing() {
			if !slices.Contains(r.Missing, m) {
				r.Missing = append(r.Missing, m)
			}
		}
	}
	return nil
}

// differ returns how many requests the policies treat differently.
func (c *Comparison) differ() (n int64) {
	for a := range c.Outcomes {
		for b := range c.Outcomes[a] {
			if a != b {
				n += c.Outcomes[a][b]
			}
		}
	}
	return n
}

// WriteText writes the comparison for people.
func (c *Comparison) WriteText(w io.Writer) error {
	var b bytes.Buffer
	c.writeText(&b)
	fmt.Fprintf(&b, "clients   %d", c.Clients)
	if c.Sampled {
		b.WriteString("   (so many that all counts of clients are estimates from a sample)")
	}
	n := c.differ()
	fmt.Fprintf(&b, "\ndifferent %d   %.2f %% of the requests\n\n", n, percent(n, c.Requests))
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "requests\tB admits\tB delays\tB limits\t\n")
	for i, name := range []string{"A admits", "A delays", "A limits"} {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t\n", name, c.Outcomes[i][0], c.Outcomes[i][1], c.Outcomes[i][2])
	}
	fmt.Fprintf(t, "\nclients limited by\tonly A\tonly B\tboth\t\n\t%d\t%d\t%d\t\n", c.OnlyA, c.OnlyB, c.Both)
	t.Flush()
	if len(c.Most) > 0 {
		t = tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintf(t, "\ntreated most differently\trequests\tlimited by A\tby B\tdelayed by A\tby B\n")
		for _, m := range c.Most {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", shownName(m.Client), m.Requests, m.LimitedA, m.LimitedB, m.DelayedA, m.DelayedB)
		}
		t.Flush()
	}
	_, err := w.Write(b.Bytes())
	return err
}

// MarshalJSON writes {"requests":N,"unparsed":N,"different":N,"by_outcome":{"allowed":{"allowed":N,"delayed":N,"limited":N},
// "delayed":{...},"limited":{...}},"clients":{"seen":N,"limited_only_by_a":N,"limited_only_by_b":N,"limited_by_both":N},"most":[...]}: the outer
// keys of by_outcome are what A did.
func (c *Comparison) MarshalJSON() ([]byte, error) {
	type outcomes struct {
		Allowed int64 `json:"allowed"`
		Delayed int64 `json:"delayed"`
		Limited int64 `json:"limited"`
	}
	type client struct {
		Client   string `json:"client"`
		Requests int64  `json:"requests"`
		LimitedA int64  `json:"limited_by_a"`
		LimitedB int64  `json:"limited_by_b"`
		DelayedA int64  `json:"delayed_by_a"`
		DelayedB int64  `json:"delayed_by_b"`
	}
	type clients struct {
		Seen    int64 `json:"seen"`
		OnlyA   int64 `json:"limited_only_by_a"`
		OnlyB   int64 `json:"limited_only_by_b"`
		Both    int64 `json:"limited_by_both"`
		Sampled bool  `json:"sampled,omitempty"`
	}
	of := func(n [3]int64) outcomes { return outcomes{n[0], n[1], n[2]} }
	most := []client{}
	for _, m := range c.Most {
		most = append(most, client(m))
	}
	return json.Marshal(struct {
		Requests  int64               `json:"requests"`
		Unparsed  int64               `json:"unparsed"`
		Different int64               `json:"different"`
		Outcomes  map[string]outcomes `json:"by_outcome"`
		Clients   clients             `json:"clients"`
		Most      []client            `json:"most"`
	}{c.Requests, c.Unparsed, c.differ(), map[string]outcomes{"allowed": of(c.Outcomes[0]), "delayed": of(c.Outcomes[1]), "limited": of(c.Outcomes[2])},
		clients{c.Clients, c.OnlyA, c.OnlyB, c.Both, c.Sampled}, most})
}
