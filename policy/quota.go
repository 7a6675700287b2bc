package policy

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// quotaWindow is the shortest window of a quota: its keys are kept, so that they can be listed, and
// snapshots contain it.
const quotaWindow = time.Hour

// longWindow is the shortest window that weir check wants a store or a snapshot for.
const longWindow = 24 * time.Hour

// isQuota reports whether the counts of a limit matter for hours.
func (l *Limit) isQuota() bool {
	return l.Limit != nil && l.Limit.Validate() == nil && !l.isConcurrency() && l.Zone == "" && window(l.Limit) >= quotaWindow
}

// unixClock returns a clock of Unix time that goes on steadily, so that states mean the same after a
// restart.
func (e *Engine) unixClock() func() int64 {
	began := e.start.UnixNano()
	return func() int64 { return began + int64(time.Since(e.start)) }
}

// quotaClock returns the clock of quotas.
func (e *Engine) quotaClock() func() int64 {
	if e.opts.Clock != nil {
		return e.opts.Clock
	}
	return e.unixClock()
}

// Usage is what a key has used of a limit.
type Usage struct {
	Limit string
	Key   []string // its parts; nil for a key that is kept as a hash, as it is long
	Plan  string
	Of    int64 // what the limit allows
	Used  int64 // also more than Of, by costs that were known only afterwards
	Left  int64
	At    time.Time     // just before it was read: Reset and Next count from then
	Reset time.Duration // until all of it is back
	Next  time.Duration // until a request is admitted again; 0 if one is now
	// the limit does not apply to the plan, and Used is only counted: Of and Left are 0
	Unlimited bool
	Shadow    bool
	Problem   error // of a store that did not respond, or that cannot decide about the key (weir.ErrCharge)
}

// Usage returns what a key has used of each limit whose key has as many parts; of a limit that does
// not exist, nothing. limit restricts it to one limit; empty for all. plan is the customer's plan;
// empty for the one that Options.Customers knows by name (PlanOf), or else of the key's last request.
func (e *Engine) Usage(ctx context.Context, limit string, key []string, plan string) (all []Usage) {
	e, in := e.enter()
	defer in.leave()
	for _, l := range e.limits {
		if l.isRest() || limit != "" && l.Name != limit || len(l.parts) != len(key) || l.places != nil || l.holder != nil {
			continue
		}
		x := activeOverride{Override: Override{Key: key}, part: -1}
		encoded, err := x.locate(l)
		if err != nil || x.part >= 0 {
			continue
		}
		u := Usage{Limit: l.Name, Key: x.Key, Plan: cmp.Or(plan, e.planOf(l, x.Key)), Shadow: l.Shadow}
		of := l.of(u.Plan)
		if of.unlimited {
			if of = of.uncharged; of == nil {
				continue
			}
		}
		var d weir.Decision
		u.At = time.Now()
		switch {
		case l.store != nil:
			u.Problem = of.peekStore(ctx, encoded, &u)
			all = append(all, u)
			continue
		case len(l.Plans) > 0:
			d = l.table.PeekBy(of.parameters, encoded, 1)
		default:
			d = l.table.Peek(encoded, 1)
		}
		if u.fill(d); l.table != nil {
			u.Used = max(u.Used, l.table.Used(encoded))
		}
		all = append(all, u)
	}
	return all
}

// planOf returns the plan of a customer in a key, if the customers' plans are known by name.
func (e *Engine) planOf(l *limit, key []string) string {
	byName, ok := e.opts.Customers.(interface{ PlanOf(customer string) string })
	i := slices.IndexFunc(l.parts, func(p part) bool { return p.kind == partCustomer })
	if !ok || i < 0 {
		return ""
	}
	return cmp.Or(byName.PlanOf(key[i]), e.policy.Plans.Default)
}

func (u *Usage) fill(d weir.Decision) {
	u.Of, u.Left, u.Reset, u.Next = d.Limit, d.Remaining, d.ResetAfter, d.RetryAfter
	u.Used = max(d.Limit-d.Remaining, 0)
	if d.Limit >= rules.NoBound {
		u.Unlimited, u.Of, u.Left = true, 0, 0
	}
}

// fillFrom is fill for a store's decision: what is used may be more than the limit.
func (u *Usage) fillFrom(d weir.Decision, c *weir.Charge) {
	if u.fill(d); u.Left == 0 {
		u.Used = max(u.Used, c.Used)
	}
}

// peekStore fills in what a key has used of a limit in a store.
func (l *limit) peekStore(ctx context.Context, key string, u *Usage) error {
	batch := []weir.Charge{{Name: l.state, Key: key, Limit: l.Limit.Limit, Plan: l.plan, Cost: 1, Op: weir.OpPeek, Usage: true}}
	out := make([]weir.Decision, 1)
	if err := l.store.Do(ctx, batch, out); err != nil {
		return err
	}
	if !stored(out[0]) {
		return errNotStored
	}
	u.fillFrom(out[0], &batch[0])
	return nil
}

// Usages yields what every key has used of the quotas that are kept in memory: limits with a window
// of an hour or more. A key that has used nothing is left out.
func (e *Engine) Usages() iter.Seq[Usage] {
	return func(yield func(Usage) bool) {
		for _, l := range e.limits {
			if l.table == nil || l.isRest() || !l.isQuota() {
				continue
			}
			for key, read := range l.table.Readings() {
				u := Usage{Limit: l.Name, At: read.At, Shadow: l.Shadow}
				u.Key, _ = DecodeKey(key)
				u.fill(read.Decision)
				if u.Used = max(u.Used, read.Used); u.Used > 0 && !yield(u) {
					return
				}
			}
		}
	}
}

// A snapshot is lines of JSON: the head, a line for each limit, below it a line for each key, and the
// SHA-256 of all of them.
type (
	snapshotHead struct {
		Weir    string    `json:"weir"` // "quotas"
		Version int       `json:"version"`
		Written time.Time `json:"written"`
	}
	snapshotLine struct {
		// of a limit
		Limit string `json:"limit,omitempty"`
		State string `json:"state,omitempty"` // its StateName

		// of a key
		Key       []byte            `json:"key,omitempty"`
		Algorithm string            `json:"algorithm,omitempty"` // empty if it is under the limit of the line before
		Fields    map[string]string `json:"fields,omitempty"`
		Words     []int64           `json:"words,omitempty"`

		SHA256 string `json:"sha256,omitempty"` // of all lines before, in the last one
	}
)

const (
	snapshotOf      = "quotas"
	snapshotVersion = 1
	maxSnapshotLine = 64 << 10
)

// ErrSnapshot is found by errors.Is in the error about a snapshot that is broken, or none at all.
var ErrSnapshot = errors.New("it is not a snapshot of quotas")

// WriteSnapshot writes the states of the quotas that are kept in memory. It returns how many keys it
// has written.
func (e *Engine) WriteSnapshot(to io.Writer) (keys int, err error) {
	return e.writeSnapshot(to, nil)
}

// writeSnapshot is WriteSnapshot. Limits that are passed on to another process are moved.
func (e *Engine) writeSnapshot(to io.Writer, moves *succession) (keys int, err error) {
	sum := sha256.New()
	w := bufio.NewWriter(io.MultiWriter(to, sum))
	out := json.NewEncoder(w)
	err = out.Encode(snapshotHead{snapshotOf, snapshotVersion, time.Now().UTC()})
	for _, l := range e.limits {
		if l.table == nil || l.isRest() || !l.isQuota() {
			continue
		}
		err = errors.Join(err, out.Encode(snapshotLine{Limit: l.Name, State: l.state}))
		var last weir.Limit
		states := l.table.States()
		if moves != nil && l.passes {
			settled := func(key string, difference int64) { moves.settled(l.state, key, difference) }
			states = func(yield func(string, keyed.Saved) bool) { l.table.Move(settled, yield) }
		}
		for key, saved := range states {
			if len(saved.State) == 0 {
				continue
			}
			line := snapshotLine{Key: []byte(key), Words: saved.State}
			if last == nil || !weir.Equal(last, saved.Limit) {
				last, line.Algorithm, line.Fields = saved.Limit, weir.Algorithm(saved.Limit), fieldTexts(saved.Limit)
			}
			if err = errors.Join(err, out.Encode(line)); err != nil {
				return keys, err
			}
			keys++
		}
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		return keys, err
	}
	return keys, json.NewEncoder(to).Encode(snapshotLine{SHA256: fmt.Sprintf("%x", sum.Sum(nil))})
}

// fieldTexts returns the fields of a limit, as ParseLimit reads them.
func fieldTexts(l weir.Limit) map[string]string {
	v := reflect.ValueOf(l)
	fields := map[string]string{}
	for i, name := range Fields(weir.Algorithm(l)) {
		if !v.Field(i).IsZero() {
			fields[name] = show(v.Field(i))
		}
	}
	return fields
}

// ReadSnapshot restores the states of a snapshot that was read as a whole. States of limits that no
// longer exist, that count by other keys, or are not in memory any more are left out. It returns how
// many keys it has restored. If the snapshot is broken, nothing is restored, and errors.Is finds
// ErrSnapshot.
func (e *Engine) ReadSnapshot(data []byte) (restored int, err error) {
	lines, err := checkSnapshot(data)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	var l *limit
	var of weir.Limit
	now := e.quotaClock()()
	for _, line := range lines {
		if line.Limit != "" {
			if l, of = e.limit(line.Limit), nil; l != nil && (l.table == nil || !l.isQuota() || l.state != line.State) {
				l = nil
			}
			continue
		}
		if line.Algorithm != "" {
			fields := map[string]any{}
			for name, text := range line.Fields {
				fields[name] = text
			}
			if of, err = ParseLimit(line.Algorithm, fields); err != nil {
				of = nil // of another version of weir
			}
		}
		if l != nil && of != nil && l.table.RestoreBy(e.savedBy(l, line, of, now), string(line.Key), keyed.Saved{Limit: of, State: line.Words}) == nil {
			restored++
		}
	}
	return restored, nil
}

// savedBy returns the parameters of the plan that a key's state was saved under; nil for those of the limit.
// If no plan has them any more, as after a grant or a change of the plan, it returns those of the customer's
// plan, where that is known and the algorithm counts beyond a limit; otherwise the smallest ones that allow
// what was used, as what was used beyond smaller ones would be lost. The key's next request counts by its plan.
func (e *Engine) savedBy(l *limit, line snapshotLine, saved weir.Limit, now int64) (by *keyed.Parameters) {
	if weir.Equal(saved, l.Limit.Limit) {
		return nil
	}
	for _, p := range l.plans {
		if p = p.counted(); p.parameters != nil && weir.Equal(saved, p.Limit.Limit) {
			return p.parameters
		}
	}
	if _, counts := rules.ParamsOf(l.Limit.Limit).(rules.Counted); counts {
		if parts, err := DecodeKey(string(line.Key)); err == nil && len(parts) == len(l.parts) {
			if plan := e.planOf(l, parts); plan != "" {
				return l.of(plan).counted().parameters
			}
		}
	}
	used := usedOf(saved, line.Words, now)
	best, _ := capacityOf(l.Limit.Limit)
	for _, p := range l.plans {
		if p = p.counted(); p.parameters == nil {
			continue
		}
		if size, _ := capacityOf(p.Limit.Limit); best < used && size > best || used <= size && size < best {
			best, by = size, p.parameters
		}
	}
	return by
}

// counted is what counts for a plan: the limit itself unless the plan is unlimited.
func (l *limit) counted() *limit {
	if l.uncharged != nil {
		return l.uncharged
	}
	return l
}

// usedOf is how much of a limit a state has used, and at least all of it if nothing is left.
func usedOf(l weir.Limit, state []int64, now int64) int64 {
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil || !p.Valid(state) {
		return 0
	}
	d := p.Peek(state, now, 0)
	return d.Limit - d.Remaining
}

// checkSnapshot checks a snapshot, and returns its lines between the head and the sum.
func checkSnapshot(data []byte) (lines []snapshotLine, err error) {
	text := bytes.TrimSuffix(data, []byte("\n"))
	end := bytes.LastIndexByte(text, '\n') + 1
	var last snapshotLine
	if json.Unmarshal(text[end:], &last) != nil || last.SHA256 == "" {
		return nil, errors.New("it has no checksum at its end: it was cut off")
	}
	if sum := sha256.Sum256(data[:end]); fmt.Sprintf("%x", sum) != last.SHA256 {
		return nil, errors.New("its checksum is wrong")
	}
	all := bufio.NewScanner(bytes.NewReader(data[:end]))
	all.Buffer(nil, maxSnapshotLine)
	var head snapshotHead
	switch {
	case !all.Scan() || json.Unmarshal(all.Bytes(), &head) != nil || head.Weir != snapshotOf:
		return nil, errors.New("it begins with something else")
	case head.Version != snapshotVersion:
		return nil, fmt.Errorf("it has version %d, and this weir reads version %d", head.Version, snapshotVersion)
	}
	for all.Scan() {
		var line snapshotLine
		if err := json.Unmarshal(all.Bytes(), &line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, all.Err()
}

// longWindows warns of long windows whose counts end with the process.
func (c *checker) longWindows() {
	if c.SnapshotFile != "" {
		return
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		if !l.isQuota() || l.Store != "" || l.Shadow || len(c.Listen.FaceNames()) == 0 {
			continue
		}
		if w := window(l.Limit); w >= longWindow {
			c.warn(fmt.Sprintf("the counts of %q end with the process, and its window is long: when it is stopped and started again, every key has all of it", l.Name),
				"snapshot_file: quotas.snapshot at the top level, or a store for the limit", "limits", l.Name)
			c.problems[len(c.problems)-1].Follows = true
		}
	}
}
