package weir

// A receipt is what a charge is remembered by: a ticket, or one for each part of an All.
type receipt struct {
	ticket ticket
	parts  *partTickets
}

type partTickets struct {
	tickets [maxParts]ticket
	lost    [maxParts]bool // nothing can be given back to this part
}

// book charges ahead, and returns what the charge is remembered by.
func book(r rule, s []int64, now, due, cost int64) ([]int64, receipt) {
	a, ok := r.(*together)
	if !ok {
		s, t := r.book(s, now, due, cost)
		return s, receipt{ticket: t}
	}
	c := receipt{parts: new(partTickets)}
	for i, r := range a.rules {
		var part []int64
		part, c.parts.tickets[i] = r.book(a.part(s, i), now, due, cost)
		s = a.put(s, i, part)
	}
	return s, c
}

// refund gives back amount of the charge, to each part as much as never admits too much.
func (c receipt) refund(r rule, s []int64, now, amount int64) []int64 {
	a, ok := r.(*together)
	if !ok {
		return r.refund(s, now, c.ticket, amount)
	}
	for i, r := range a.rules {
		if len(s) > 0 && !c.parts.lost[i] {
			s = a.put(s, i, r.refund(a.part(s, i), now, c.parts.tickets[i], amount))
		}
	}
	return s
}

// reticket carries the receipt over a change of the limit. It reports false where nothing can be given back across it.
func (c receipt) reticket(from rule, now int64, to rule) (next receipt, ok bool) {
	old, joined := split(from, nil)
	parts, joins := split(to, nil)
	if !joined && !joins {
		next.ticket, ok = from.reticket(c.ticket, now, to)
		return next, ok
	}
	if joins {
		next.parts = new(partTickets)
	}
	for j, i := range match(old.kinds, parts.kinds) {
		var t ticket
		given := i >= 0 && (joins || old.kinds[i] == parts.kinds[j])
		switch {
		case given && joined:
			t, given = c.parts.tickets[i], !c.parts.lost[i]
		case given:
			t = c.ticket
		}
		if given {
			t, given = old.rules[i].reticket(t, now, parts.rules[j])
		}
		if ok = ok || given; joins {
			next.parts.tickets[j], next.parts.lost[j] = t, !given
		} else {
			next.ticket = t
		}
	}
	return next, ok
}

// split returns a rule as the All that it is, or as one of itself alone. l is its limit in normal form.
func split(r rule, l Limit) (a *together, joined bool) {
	if a, ok := r.(*together); ok {
		return a, true
	}
	return &together{rules: []rule{r}, kinds: []string{kindOfRule(r)}, plain: []Limit{l}}, false
}

// kindOfRule is the kind of limit that a rule is of.
func kindOfRule(r rule) string {
	switch r := r.(type) {
	case *bucket:
		switch {
		case r.leaky:
			return Kind(LeakyBucket{})
		case r.owing:
			return Kind(SmoothBursty{})
		}
		return Kind(TokenBucket{})
	case *interval:
		return Kind(IntervalBucket{})
	case *fixed:
		return Kind(FixedWindow{})
	case *sliding:
		return Kind(SlidingWindow{})
	case *weighted:
		return Kind(SlidingCounter{})
	case *logged:
		return Kind(SlidingLog{})
	case *warm:
		return Kind(WarmUp{})
	case *thousandths:
		return Kind(NginxBucket{})
	}
	return ""
}

// match says, for each of the new kinds, which of the old ones is carried over to it: those of the same kind in order, then those that
// are left over in order; below 0 for one that is new.
func match(old, next []string) []int {
	from := make([]int, len(next))
	used := make([]bool, len(old))
	take := func(j int, fits func(i int) bool) {
		for i := range old {
			if !used[i] && fits(i) {
				from[j], used[i] = i, true
				return
			}
		}
	}
	for j := range next {
		from[j] = -1
		take(j, func(i int) bool { return old[i] == next[j] })
	}
	for j := range next {
		if from[j] < 0 {
			take(j, func(int) bool { return true })
		}
	}
	return from
}

// change carries a state over to another rule, as rule.convert does, where one of the two may be an All. was and is are the limits in
// normal form: a part of an All whose limit stays as it was keeps its state to the last digit, as a limit does that is set to an equal one.
// Where the readings now and then differ they are of different clocks, and no time in the state means anything to the new rule: then each
// part is carried over as at a change of kind.
func change(from rule, was Limit, s []int64, now int64, to rule, is Limit, then int64) []int64 {
	old, joined := split(from, was)
	next, joins := split(to, is)
	switch {
	case !joined && !joins:
		return from.convert(s, now, to, then)
	case len(s) == 0:
		return s
	}
	var all []int64
	for j, i := range match(old.kinds, next.kinds) {
		r := next.rules[j]
		if !joins && old.kinds[i] != next.kinds[j] { // several become one of another kind
			return transfer(from, s, now, to, then)
		}
		var part []int64
		if i >= 0 {
			part = s
			if joined {
				part = old.part(s, i)
			}
			part = append([]int64(nil), part...)
			switch {
			case now != then:
				part = transfer(old.rules[i], part, now, r, then)
			case old.plain[i] != next.plain[j]:
				part = old.rules[i].convert(part, now, r, then)
			}
		}
		if !joins {
			return append(s[:0], part...)
		}
		if len(part) == 0 {
			part = r.contact(nil, then)
		}
		all = next.put(all, j, part)
	}
	return append(s[:0], all...)
}
