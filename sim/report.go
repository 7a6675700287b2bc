package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirflow/weir/internal/topk"
	"github.com/weirflow/weir/policy"
)

// A Report is the result of a replay.
type Report struct {
	Requests  int64 // readable requests
	Unparsed  int64 // unreadable lines
	NoRoute   int64 // requests without a route, which are allowed
	Invalid   int64 // requests with an invalid cost or an ambiguous path, which are refused
	Allowed   int64 // requests admitted at once
	Limited   int64 // requests refused by a limit
	Delayed   int64 // requests that waited in a queue
	First     int64 // Unix time of the first request, in nanoseconds
	Last      int64
	Limits    []LimitCount
	Samples   []BadLine            // the first unreadable lines
	Missing   []policy.MissingPart // parts of keys that no request had
	Most      []LimitedKey
	MostError int64 // by how much a count of Most may be too high
	top       *topKeys
}

// LimitCount counts the decisions of one limit. A request counts once for each limit that was
// evaluated; a refused request counts only for the limit that refused it.
type LimitCount struct {
	Limit                     string
	Shadow                    bool
	Allowed, Limited, Delayed int64
	// the shadow of the limit before it, for keys outside its roll_out
	Rest bool

	// for a limit whose costs are known only afterwards: the sums of what was charged before and after,
	// and how many requests' costs the logs did not have
	Settles                    bool
	Estimated, Actual, Unknown int64
}

// BadLine is an unreadable line.
type BadLine struct {
	Line int64 // counted through all inputs
	Why  string
	Text string // its start
}

// LimitedKey is a key and how often a limit refused it.
type LimitedKey struct {
	Limit string
	Key   string // its parts, separated by commas
	Count int64
}

const (
	mostKeys    = 10
	trackedKeys = 10_000
	shownText   = 80
)

func newReport() *Report { return &Report{top: newTopKeys(trackedKeys)} }

// unparsed counts an unreadable line, and keeps the first few as samples.
func (r *Report) unparsed(line int64, text string, why error) {
	r.Unparsed++
	i, _ := slices.BinarySearchFunc(r.Samples, line, func(b BadLine, line int64) int { return cmp.Compare(b.Line, line) })
	if i >= showUnparsed {
		return
	}
	if len(text) > shownText {
		text = text[:shownText] + "..."
	}
	r.Samples = slices.Insert(r.Samples, i, BadLine{line, why.Error(), strings.Clone(text)})
	r.Samples = r.Samples[:min(len(r.Samples), showUnparsed)]
}

// add counts a request.
func (r *Report) add(at int64, v *policy.Verdict) {
	if r.Requests == 0 {
		r.First = at
	}
	r.Requests++
	r.Last = at
	switch v.Outcome {
	case policy.Allow:
		r.Allowed++
	case policy.Delay:
		r.Delayed++
	case policy.Deny:
		r.Limited++
		r.top.add(v.Limit, v.Key)
	case policy.NoRoute:
		r.NoRoute++
		r.Allowed++
	case policy.Invalid:
		r.Invalid++
	}
}

// count copies the counters of the engine.
func (r *Report) count(e *policy.Engine) {
	for _, c := range e.Counts() {
		r.Limits = append(r.Limits, LimitCount{
			Limit: c.Limit, Shadow: c.Shadow, Rest: c.Rest, Settles: c.Settles,
			Allowed: int64(c.Allowed), Limited: int64(c.Limited), Delayed: int64(c.Delayed),
			Estimated: int64(c.Estimated), Actual: int64(c.Actual), Unknown: int64(c.Unknown),
		})
	}
	r.Missing = e.Missing()
	r.Most, r.MostError = r.top.most(mostKeys)
}

// MarshalJSON writes
// {"requests":N,"unparsed":N,"limits":{"NAME":{"allowed":N,"limited":N,"delayed":N}}}, the limits
// in the order of the policy. A shadow limit also has "shadow":true, a limit whose costs are known only
// afterwards "cost":{"estimated":N,"actual":N,"unknown":N}, and a limit with a roll_out
// its counts as a shadow: "rest":{"allowed":N,"limited":N,"delayed":N}.
func (r *Report) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"requests":%d,"unparsed":%d,"limits":{`, r.Requests, r.Unparsed)
	for i, l := range r.Limits {
		if l.Rest { // it comes right after its limit
			b.Truncate(b.Len() - 1)
			fmt.Fprintf(&b, `,"rest":{"allowed":%d,"limited":%d,"delayed":%d}}`, l.Allowed, l.Limited, l.Delayed)
			continue
		}
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(l.Limit)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `%s:{"allowed":%d,"limited":%d,"delayed":%d`, name, l.Allowed, l.Limited, l.Delayed)
		if l.Shadow {
			b.WriteString(`,"shadow":true`)
		}
		if l.Settles {
			fmt.Fprintf(&b, `,"cost":{"estimated":%d,"actual":%d,"unknown":%d}`, l.Estimated, l.Actual, l.Unknown)
		}
		b.WriteByte('}')
	}
	b.WriteString("}}")
	return b.Bytes(), nil
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "requests  %d", r.Requests)
	if r.Requests > 0 {
		first, last := time.Unix(0, r.First).UTC(), time.Unix(0, r.Last).UTC()
		fmt.Fprintf(&b, "   %s to %s (%v)", first.Format(time.RFC3339), last.Format(time.RFC3339), last.Sub(first))
	}
	b.WriteString("\n")
	share := func(name string, n int64) {
		fmt.Fprintf(&b, "%-9s %d", name, n)
		if r.Requests > 0 {
			fmt.Fprintf(&b, "   %.2f %%", 100*float64(n)/float64(r.Requests))
		}
		b.WriteString("\n")
	}
	share("allowed", r.Allowed)
	share("limited", r.Limited)
	share("delayed", r.Delayed)
	if r.NoRoute > 0 {
		fmt.Fprintf(&b, "no route  %d   (of those allowed)\n", r.NoRoute)
	}
	if r.Invalid > 0 {
		fmt.Fprintf(&b, "invalid   %d   (refused: the header field with the cost holds none, or the path is ambiguous)\n", r.Invalid)
	}
	r.tables(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) tables(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	if len(r.Limits) > 0 {
		fmt.Fprintf(t, "\nlimit\tallowed\tlimited\tdelayed\t\n")
	}
	for _, l := range r.Limits {
		shadow := ""
		switch {
		case l.Rest:
			shadow = " shadow, beyond its roll_out"
		case l.Shadow:
			shadow = " shadow"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", l.Limit, l.Allowed, l.Limited, l.Delayed, shadow)
	}
	t.Flush()
	r.costs(b)
	if len(r.Most) > 0 {
		b.WriteString("\nmost limited\n")
	}
	t = tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, m := range r.Most {
		fmt.Fprintf(t, "  %d\t%s\t%s\n", m.Count, m.Limit, m.Key)
	}
	t.Flush()
	if r.MostError > 0 {
		fmt.Fprintf(b, "  (so many keys were limited that a count may be up to %d too high)\n", r.MostError)
	}
}

// costs writes what was charged by limits whose costs are known only afterwards.
func (r *Report) costs(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	begun := false
	for _, l := range r.Limits {
		if l.Settles && !begun {
			begun = true
			fmt.Fprintf(t, "\nlimit\testimated cost\tactual cost\tunknown\t\n")
		}
		if l.Settles {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t\n", l.Limit, l.Estimated, l.Actual, l.Unknown)
		}
	}
	t.Flush()
}

// topKeys counts how often keys were refused, in bounded memory.
type topKeys struct {
	sketch *topk.Sketch[[2]string] // of limit and key
	seed   maphash.Seed
}

func newTopKeys(capacity int) *topKeys {
	return &topKeys{topk.NewSerial[[2]string](capacity), maphash.MakeSeed()}
}

func (t *topKeys) add(limit, key string) {
	k := [2]string{limit, key}
	t.sketch.Add(k, maphash.Comparable(t.seed, k), 1)
}

// most returns the n most frequent keys, and by how much a count may be too high.
func (t *topKeys) most(n int) (all []LimitedKey, over int64) {
	counted := t.sketch.Heaviest(trackedKeys)
	slices.SortFunc(counted, func(a, b topk.Counted[[2]string]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key[0], b.Key[0]), strings.Compare(a.Key[1], b.Key[1]))
	})
	for _, c := range counted[:min(n, len(counted))] {
		all = append(all, LimitedKey{c.Key[0], keyParts(c.Key[1]), int64(c.Count)})
		over = max(over, int64(c.Error))
	}
	return all, over
}

// keyParts formats a key as its parts, separated by commas.
func keyParts(key string) string {
	parts, err := policy.DecodeKey(key)
	if err != nil {
		return "(a long key)"
	}
	if len(parts) == 0 {
		return "(all)"
	}
	for i, p := range parts {
		if p == "" || strings.ContainsAny(p, ",\" \t\n") || !printable(p) {
			parts[i] = fmt.Sprintf("%q", p)
		}
	}
	return strings.Join(parts, ",")
}

func printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return false
		}
	}
	return true
}
