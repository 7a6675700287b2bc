package sim

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	r.writeText(&b)
	fmt.Fprintf(&b, "clients   %d", r.Clients.Seen)
	if r.Clients.Sampled {
		b.WriteString("   (so many that all counts of clients are estimates from a sample)")
	}
	b.WriteString("\n")
	share := func(name string, n, clients int64) {
		fmt.Fprintf(&b, "%-9s %d", name, n)
		if r.Requests > 0 {
			fmt.Fprintf(&b, "   %.2f %%", percent(n, r.Requests))
		}
		if clients > 0 {
			fmt.Fprintf(&b, "   of %d clients, %.2f %%", clients, percent(clients, r.Clients.Seen))
		}
		b.WriteString("\n")
	}
	share("allowed", r.Allowed, 0)
	share("limited", r.Limited, r.Clients.Limited)
	share("delayed", r.Delayed, r.Clients.Delayed)
	if r.NoRoute > 0 {
		fmt.Fprintf(&b, "no route  %d   (of those allowed)\n", r.NoRoute)
	}
	if r.Invalid > 0 {
		fmt.Fprintf(&b, "invalid   %d   (refused: the header field with the cost holds none, or the path is ambiguous)\n", r.Invalid)
	}
	r.limits(&b)
	r.adaptives(&b)
	r.routes(&b)
	r.costs(&b)
	r.times(&b)
	r.peaks(&b)
	r.most(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// limits writes the table of limits.
func (r *Report) limits(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	if len(r.Limits) > 0 {
		fmt.Fprintf(t, "\nlimit\tallowed\tlimited\tdelayed\tclients limited\t\n")
	}
	for _, l := range r.Limits {
		shadow := ""
		switch {
		case l.Rest:
			shadow = " shadow, beyond its roll_out"
		case l.Shadow:
			shadow = " shadow"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\n", shownName(l.Limit), l.Allowed, l.Limited, l.Delayed, l.ClientsLimited, shadow)
	}
	t.Flush()
}

// routes writes the table of routes, if there are several.
func (r *Report) routes(b *bytes.Buffer) {
	if len(r.Routes) < 2 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nroute\trequests\tlimited\tdelayed\tclients limited\t\n")
	for _, route := range r.Routes {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t\n", shownName(route.Match), route.Requests, route.Limited, route.Delayed, route.ClientsLimited)
	}
	t.Flush()
}

// times writes the first and the worst hour, and how close the clients came that were never limited.
func (r *Report) times(b *bytes.Buffer) {
	if r.Requests == 0 || len(r.Limits) == 0 {
		return
	}
	if r.Limited > 0 {
		b.WriteString("\n")
		for _, h := range []struct {
			name string
			span Span
		}{{"first limited hour", r.FirstHour}, {"worst hour", r.WorstHour}} {
			fmt.Fprintf(b, "%-18s   %s   %d of %d requests limited, %.2f %%\n", h.name, h.span.Start.Format(time.RFC3339), h.span.Limited, h.span.Requests, percent(h.span.Limited, h.span.Requests))
		}
	}
	if c := &r.Clients; c.Seen > c.Limited {
		fmt.Fprintf(b, "\nof the %d clients that were never limited\n", c.Seen-c.Limited)
		fmt.Fprintf(b, "  half used at most %d %% of a limit, 90 %% of them at most %d %%, 99 %% at most %d %%, and one %d %%\n", c.Used.Half, c.Used.P90, c.Used.P99, c.Used.Max)
		fmt.Fprintf(b, "  %d came close: they used at least 80 %%\n", c.Close)
	}
}

// peaks writes how much clients sent at most.
func (r *Report) peaks(b *bytes.Buffer) {
	if r.Requests == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nmost requests of a client in one\thalf of the clients\t90 %%\t99 %%\t99.9 %%\tall\t\n")
	for i, q := range r.Clients.Peaks {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", peakNames[i], q.Half, q.P90, q.P99, q.P999, q.Max)
	}
	t.Flush()
}

// most writes the keys that were limited most.
func (r *Report) most(b *bytes.Buffer) {
	if len(r.Most) > 0 {
		b.WriteString("\nmost limited\n")
	}
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
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
