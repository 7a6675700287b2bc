package policy

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// An Event is something that a limit did to a request, of a limit whose Log asks for it.
type Event struct {
	Limit  string
	Zone   string // what the log calls it: the zone of the limit, or the limit
	Level  string // of the log: that of the limit for a refusal, one below for a delay
	Shadow bool   // it did not come to pass, as the limit is a shadow
	Places bool   // the limit is one of concurrency

	Delayed bool  // the request was delayed; otherwise it was refused
	Excess  int64 // by how much it was above the rate, in thousandths of a request; below 0 for a limit that has none
}

// String is the line that nginx writes about it.
func (e Event) String() string {
	dry := ""
	if e.Shadow {
		dry = ", dry run"
	}
	excess := ""
	if e.Excess >= 0 {
		excess = fmt.Sprintf(", excess: %d.%03d", e.Excess/1000, e.Excess%1000)
	}
	switch {
	case e.Places && e.Shadow:
		return fmt.Sprintf("limiting connections, dry run, by zone %q", e.Zone)
	case e.Places:
		return fmt.Sprintf("limiting connections by zone %q", e.Zone)
	case e.Delayed:
		return fmt.Sprintf("delaying request%s%s, by zone %q", dry, excess, e.Zone)
	}
	return fmt.Sprintf("limiting requests%s%s by zone %q", dry, excess, e.Zone)
}

// note writes down that a limit refused, or delayed, where its Log asks for it.
func (v *Verdict) note(l *limit, d weir.Decision, cost int64, delay time.Duration) {
	if l.Log == "" {
		return
	}
	e := Event{Limit: l.Name, Zone: cmp.Or(l.Zone, l.Name), Level: l.Log, Shadow: l.Shadow, Places: l.enters(), Delayed: delay > 0, Excess: l.excess(d, cost, delay > 0)}
	if e.Delayed {
		for i, level := range logLevels[:len(logLevels)-1] {
			if level == l.Log {
				e.Level = logLevels[i+1]
			}
		}
	}
	v.more().events = append(v.more().events, e)
}

// noteOutcome writes down what a limit did to the request.
func (v *Verdict) noteOutcome() {
	if v.Outcome != Deny && v.Outcome != Delay {
		return
	}
	for i, l := range v.evaluated {
		if l.Name != v.Limit || l.Log == "" {
			continue
		}
		d, cost := v.Decision, v.cost
		if v.charges != nil {
			d, cost = v.charges[i].Decision, v.charges[i].Cost
		}
		if d.Limit > 0 { // else the limit was not asked
			v.note(l, d, cost, v.Delay)
		}
	}
}

// excess is by how much a request is above the rate, in thousandths, as nginx counts it: the first from idle by nothing. It is below 0 for
// limits that do not go by a rate.
func (l *limit) excess(d weir.Decision, cost int64, admitted bool) int64 {
	if p, ok := rules.ParamsOf(l.Limit.Limit).(rules.Paced); ok {
		return p.Excess(admitted, d.Level, d.ResetAfter, cost)
	}
	return -1
}

// rare is what most verdicts do not have.
type rare struct {
	events []Event
	doors  []concurrencyPlace // of limits of concurrency

	// How long nginx's arithmetic has the request held back, from when that was decided.
	e       *Engine
	wait    time.Duration
	decided int64
}

// more is the verdict's rare, made where there was none.
func (v *Verdict) more() *rare {
	if v.rare == nil {
		v.rare = new(rare)
	}
	return v.rare
}

// Events returns what limits did to the request whose Log asks for it.
func (v *Verdict) Events() []Event {
	if v.rare == nil {
		return nil
	}
	return v.rare.events
}

// now and after are the engine's clock and timers.
func (e *Engine) now() int64 {
	if e.opts.Clock != nil {
		return e.opts.Clock()
	}
	return int64(time.Since(e.start))
}

func (e *Engine) after(d time.Duration, f func()) weir.Timer {
	if e.opts.Timers != nil {
		return e.opts.Timers(d, f)
	}
	return time.AfterFunc(d, f)
}

// holdBack has a request wait that was admitted, and charged, ahead of its time. As in nginx the longest of several delays counts.
func (v *Verdict) holdBack(e *Engine, l *limit, key string, d weir.Decision, cost int64) {
	wait := l.held(d, cost)
	if wait == 0 {
		return
	}
	m := v.more()
	if m.e == nil {
		m.e, m.decided = e, e.now()
	}
	m.wait = max(m.wait, wait)
	if wait > v.Delay {
		v.Outcome, v.Limit, v.Key, v.Delay = Delay, l.Name, key, wait
	}
}

// sleep waits until the request may go.
func (m *rare) sleep(ctx context.Context) error {
	if m == nil || m.wait == 0 {
		return nil
	}
	return m.e.sleep(ctx, m.wait, m.decided)
}

// letGo gives back what was charged for a request that was given up while it was held back; but what an NginxBucket was charged stays, as nginx
// has it.
func (v *Verdict) letGo() {
	for i := range v.charges {
		if k := rules.KindOf(v.evaluated[i].Limit.Limit); k == nil || !k.KeepsCharge {
			_ = v.charges[i].Cancel()
		}
	}
	v.settleStores(context.Background(), func(int) (int64, bool) { return 0, true })
}
