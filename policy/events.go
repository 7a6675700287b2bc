package policy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// An Event records that a limit with a Log refused or delayed a request.
type Event struct {
	Limit  string
	Zone   string // the limit's zone, or its name if it has none
	Level  string // the log level: the limit's own for a refusal, one below for a delay
	Shadow bool   // the limit is a shadow, so nothing really happened
	Places bool   // the limit is a Concurrency

	Delayed bool // the request was delayed; false: refused
	// how far the request is above the rate, in thousandths of a request; negative for limits
	// without a rate
	Excess int64
}

// String returns the line that nginx would log.
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

// LogLevel returns Level for package slog. notice is between info and warn.
func (e Event) LogLevel() slog.Level {
	switch e.Level {
	case "error":
		return slog.LevelError
	case "warn":
		return slog.LevelWarn
	case "notice":
		return slog.LevelInfo + 2
	}
	return slog.LevelInfo
}

// note records a refusal or a delay of a limit that has a Log.
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
	v.extra().events = append(v.extra().events, e)
}

// noteOutcome records what a limit did to the request.
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
		if d.Limit > 0 { // otherwise the limit was not evaluated
			v.note(l, d, cost, v.Delay)
		}
	}
}

// excess returns how far a request is above the rate, in thousandths of a request, as nginx counts
// it: 0 for the first request after idle. It is negative for limits without a rate.
func (l *limit) excess(d weir.Decision, cost int64, admitted bool) int64 {
	if p, ok := rules.ParamsOf(l.Limit.Limit).(rules.Paced); ok {
		return p.Excess(admitted, d.Level, d.ResetAfter, cost)
	}
	return -1
}

// rareParts holds the parts that most verdicts do not have.
type rareParts struct {
	events  []Event
	places  []concurrencyPlace // of Concurrency limits
	entered bool               // the request has a place at each of them, and at the adaptive limits
	admits  admission          // the adaptive limits

	observed *Engine // whose Observer is called when the request finds no place; nil for none

	// How long nginx's arithmetic delays the request, and since when.
	e       *Engine
	wait    time.Duration
	decided int64
}

// extra returns v.rare, and creates it at the first call.
func (v *Verdict) extra() *rareParts {
	if v.rare == nil {
		v.rare = new(rareParts)
	}
	return v.rare
}

// Events returns the events of this request.
func (v *Verdict) Events() []Event {
	if v.rare == nil {
		return nil
	}
	return v.rare.events
}

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

// delay delays a request that was admitted and charged ahead of its time. Of several delays the
// longest applies, as in nginx.
func (v *Verdict) delay(e *Engine, l *limit, key string, d weir.Decision, cost int64) {
	wait := l.fixedDelay(d, cost)
	if wait == 0 {
		return
	}
	m := v.extra()
	if m.e == nil {
		m.e, m.decided = e, e.now()
	}
	m.wait = max(m.wait, wait)
	if wait > v.Delay {
		v.Outcome, v.Limit, v.Key, v.Delay = Delay, l.Name, key, wait
	}
}

// sleep waits until the request may go on.
func (m *rareParts) sleep(ctx context.Context) error {
	if m == nil || m.wait == 0 {
		return nil
	}
	return m.e.sleep(ctx, m.wait, m.decided)
}

// giveUpDelay gives back the charges of a request that was given up during its delay. The charge of
// an NginxBucket stays, as in nginx.
func (v *Verdict) giveUpDelay() {
	for i := range v.charges {
		if k := rules.KindOf(v.evaluated[i].Limit.Limit); k == nil || !k.KeepsCharge {
			_ = v.charges[i].Cancel()
		}
	}
	v.endShadows()
	_ = v.settleStores(context.Background(), func(int) (int64, bool) { return 0, true })
}
