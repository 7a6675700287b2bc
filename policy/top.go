package policy

import (
	"hash/maphash"
	"maps"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/topk"
	"github.com/weirflow/weir/keyed"
)

// topOneIn says how many decisions of a limit in memory are made for each that is counted for its key, after
// the first 20,000: counting takes longer than many a decision.
const topOneIn = 16

// A TopKey is one of the heaviest or most refused keys of a limit. Its true count is at most Count,
// and at least Count-Error.
type TopKey struct {
	Key          []string // nil for a key that was replaced by its hash, because it is too long
	Count, Error uint64
}

// storedTops finds the heaviest and most refused keys of a limit in a store: as this process sees
// them. A limit in memory has the counters of its table.
type storedTops struct {
	seed              maphash.Seed
	heaviest, refused *topk.Sketch[string]
}

func newStoredTops(counters int) *storedTops {
	return &storedTops{maphash.MakeSeed(), topk.New[string](counters), topk.New[string](counters)}
}

// note counts a decision. Without counters it does nothing.
func (t *storedTops) note(key string, cost int64, allowed bool) {
	switch {
	case t == nil:
	case !allowed:
		t.refused.Add(key, maphash.String(t.seed, key), 1)
	case cost > 0:
		t.heaviest.Add(key, maphash.String(t.seed, key), uint64(cost))
	}
}

// Top returns at most n keys of a limit with the largest sum of admitted costs, and at most n that
// were refused most often, since the limit began to count. Of a limit in memory with many decisions, the counts
// are estimates from a sample. Limits of a zone share their keys. ok is
// false if Options.Top is 0, and for limits that count no keys: shadows for the keys outside of a
// roll_out, and Concurrency. Of a limit in a store, these are the keys of this process's decisions.
func (e *Engine) Top(limit string, n int) (heaviest, refused []TopKey, ok bool) {
	l := e.limit(limit)
	if l == nil || e.opts.Top == 0 {
		return nil, nil, false
	}
	switch {
	case l.tops != nil:
		return storedKeys(l.tops.heaviest.Heaviest(n)), storedKeys(l.tops.refused.Heaviest(n)), true
	case l.table != nil:
		return tableKeys(l.table.Heaviest(n)), tableKeys(l.table.MostLimited(n)), true
	}
	return nil, nil, false
}

func storedKeys(all []topk.Counted[string]) []TopKey {
	out := make([]TopKey, len(all))
	for i, c := range all {
		out[i] = TopKey{partsOf(c.Key), c.Count, c.Error}
	}
	return out
}

func tableKeys(all []keyed.Top[string]) []TopKey {
	out := make([]TopKey, len(all))
	for i, c := range all {
		out[i] = TopKey{partsOf(c.Key), c.Count, c.Error}
	}
	return out
}

// partsOf returns the parts of an encoded key; nil for one that was replaced by its hash.
func partsOf(key string) []string {
	if key == "" {
		return []string{}
	}
	parts, err := DecodeKey(key)
	if err != nil {
		return nil
	}
	return parts
}

// RuleText returns the parameters of a limit in one line, as in a policy file: burst=10 rate=5/m.
func RuleText(l weir.Limit) (text string) {
	fields := fieldTexts(l)
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			text += " "
		}
		text += name + "=" + fields[name]
	}
	return text
}
