package policy

import "github.com/weirflow/weir"

// applicability says how a limit applies to a request.
type applicability uint8

const (
	charged applicability = iota
	// a part of the key is missing, and on_missing says that the limit does not apply
	skipped
	missing     // a part of the key is missing, and on_missing refuses the request
	invalidCost // the header field of the cost holds no valid cost
	banned      // the key is banned; request.banned says for how long
	exempt      // the limit does not apply to the request
)

// countExempt counts an exempt request.
func (l *limit) countExempt(q applicability) {
	if q == exempt && !l.isRest() {
		l.counts.exempt.Add(1)
	}
}

// keyAndCost determines a limit's key and cost for a request.
func (l *limit) keyAndCost(buf []byte, r *request) (key []byte, cost int64, q applicability) {
	if r.named == nil {
		return l.applies(buf, r)
	}
	r.Client = r.named.of(l).client
	key, cost, q = l.applies(buf, r)
	if l.isOfAsk() {
		r.named.of(l).applied = q
	}
	return key, cost, q
}

// applies is keyAndCost for one request, or for one limit that an Ask names.
func (l *limit) applies(buf []byte, r *request) (key []byte, cost int64, q applicability) {
	key, parts := l.key(buf, r)
	free := l.unlimited || l.exempt.has(key, parts.repeated, r)
	switch {
	case free: // an exemption counts even if a part is missing; only a ban overrides it
	case !parts.present && l.OnMissing == "deny":
		return key, 0, missing
	case parts.repeated: // the upstream may use one of the values, so the limit applies whatever else is missing
	case parts.empty && l.OnMissing == "skip_empty", !parts.present && l.OnMissing == "skip":
		return key, 0, skipped
	}
	if all := l.except.now(); all != nil {
		if q = l.overriddenBy(all, key, r); q != charged {
			return key, 0, q
		}
	}
	if free {
		return key, 0, exempt
	}
	if l.share != nil && !l.share.has(l.Name, key) {
		return key, 0, skipped
	}
	if r.named != nil {
		return key, r.named.of(l).cost, charged
	}
	if l.late != nil {
		return key, l.late.estimate(l, key, r), charged
	}
	cost, ok := l.cost.of(r)
	if !ok {
		return key, 0, invalidCost
	}
	return key, cost, charged
}

// found says which parts of a key a request has.
type found struct {
	present  bool // all parts
	empty    bool // every part is missing, or was sent once without a value
	repeated bool // at least one part was sent more than once
}

// key builds a limit's key for a request.
func (l *limit) key(buf []byte, r *request) (key []byte, parts found) {
	parts = found{present: true, empty: len(l.parts) > 0}
	for i := range l.parts {
		value, ok, repeated := l.value(i, r)
		parts.present, parts.empty = parts.present && ok, parts.empty && value == "" && !repeated
		parts.repeated = parts.repeated || repeated
		buf = appendKey(buf, value)
		if ok && l.presence != nil {
			l.presence.note(i)
		}
	}
	if l.presence != nil {
		l.presence.asked.Store(true)
	}
	return seal(buf), parts
}

// settle refuses a request without evaluating the limit.
func (v *Verdict) settle(l *limit, key []byte, q applicability, r *request) {
	if q == banned {
		v.deny(l, l.text(key), weir.Decision{RetryAfter: r.banned, ResetAfter: r.banned, By: l.banBy})
		l.counts.banned.Add(1)
		return
	}
	v.deny(l, l.text(key), weir.Decision{RetryAfter: weir.Never, By: l.Name})
	if q == invalidCost {
		v.Outcome = Invalid
		return
	}
	l.counts.limited.Add(1)
}

// withoutCharge decides where a single limit's key and cost leave nothing to evaluate.
func (v *Verdict) withoutCharge(l *limit, key []byte, q applicability, r *request) {
	if q == skipped || q == exempt {
		l.countExempt(q)
		v.evaluated = nil
		return
	}
	v.settle(l, key, q, r)
}

// text returns a copy of the key if verdicts carry keys.
func (l *limit) text(key []byte) string {
	if !l.keepsKey {
		return ""
	}
	return string(key)
}
