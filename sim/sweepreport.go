package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weirflow/weir/policy"
)

// A SweepReport is the result of Sweep.
type SweepReport struct {
	Reading
	Limit        string
	Parameters   []string
	Clients      int64 // distinct clients
	Sampled      bool  // Clients, and those of the combinations, are estimates from a sample
	Forgotten    int64 // of all combinations
	Combinations []Combination
	Missing      []policy.MissingPart // parts of keys that no request had
}

// A Combination is what the policy does with some values of the parameters. All its limits count, not only
// the one that varies.
type Combination struct {
	Values    []string // of the parameters
	Limited   int64    // requests refused by a limit
	Delayed   int64    // requests that waited in a queue
	Clients   int64    // distinct clients with a request that was refused
	Forgotten int64    // how often a key in use was forgotten for lack of room, so that too few requests were limited
}

// percent returns a share, in percent.
func percent(n, of int64) float64 { return 100 * float64(n) / float64(max(of, 1)) }

// MarshalJSON writes {"requests":N,"unparsed":N,"clients":N,"limit":NAME,"combinations":[...]}, and for each
// combination {"rate":"1/s","burst":"5","limited":N,"limited_percent":X,"delayed":N,"clients_limited":N,
// "clients_limited_percent":X}. "sampled":true and "forgotten":N are there if they apply.
func (r *SweepReport) MarshalJSON() ([]byte, error) {
	limit, err := json.Marshal(r.Limit)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"requests":%d,"unparsed":%d,"clients":%d,`, r.Requests, r.Unparsed, r.Clients)
	if r.Sampled {
		b.WriteString(`"sampled":true,`)
	}
	fmt.Fprintf(&b, `"limit":%s,"combinations":[`, limit)
	for i, c := range r.Combinations {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		for j, name := range r.Parameters {
			fmt.Fprintf(&b, `%q:%q,`, name, c.Values[j])
		}
		fmt.Fprintf(&b, `"limited":%d,"limited_percent":%.4f,"delayed":%d,"clients_limited":%d,"clients_limited_percent":%.4f`,
			c.Limited, percent(c.Limited, r.Requests), c.Delayed, c.Clients, percent(c.Clients, r.Clients))
		if c.Forgotten > 0 {
			fmt.Fprintf(&b, `,"forgotten":%d`, c.Forgotten)
		}
		b.WriteByte('}')
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}

// WriteText writes the report for people.
func (r *SweepReport) WriteText(w io.Writer) error {
	var b bytes.Buffer
	r.writeText(&b)
	fmt.Fprintf(&b, "clients   %d", r.Clients)
	if r.Sampled {
		b.WriteString("   (so many that all counts of clients are estimates from a sample)")
	}
	fmt.Fprintf(&b, "\nlimit     %s\n\n", r.Limit)
	delays := false
	for _, c := range r.Combinations {
		delays = delays || c.Delayed > 0
	}
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\trequests limited\tshare\tclients limited\tshare\t", strings.Join(r.Parameters, "\t"))
	if delays {
		fmt.Fprintf(t, "requests delayed\tshare\t")
	}
	fmt.Fprintln(t)
	for _, c := range r.Combinations {
		fmt.Fprintf(t, "%s\t%d\t%.2f %%\t%d\t%.2f %%\t", strings.Join(c.Values, "\t"), c.Limited, percent(c.Limited, r.Requests), c.Clients, percent(c.Clients, r.Clients))
		if delays {
			fmt.Fprintf(t, "%d\t%.2f %%\t", c.Delayed, percent(c.Delayed, r.Requests))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	if r.Forgotten > 0 {
		fmt.Fprintf(&b, "\nThere were so many clients at a time that a key in use was forgotten %d times: too few are limited. Try fewer combinations at once.\n", r.Forgotten)
	}
	_, err := w.Write(b.Bytes())
	return err
}
