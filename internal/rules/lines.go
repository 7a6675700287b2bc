package rules

// Lines connect the parts of a limit with those of its earlier versions, so that a charge of one
// version can be refunded in any later one: no version in between has to be kept. A limit that is no
// All has one part. The zero Lines are those of a limit that has not changed.
type Lines struct {
	of   []line // nil: each part has a line of its own, and has not changed
	made uint64 // how many lines there have been, at least
}

// A line is the versions of a part between which tickets can be converted.
type line struct {
	number  uint64
	changes uint64 // of the part's parameters, since the line began
}

func (l Lines) at(part int) line {
	if l.of == nil {
		return line{number: uint64(part)}
	}
	return l.of[part]
}

// Next returns the Lines after a change of the limit. If the new limit reads another clock, no line
// goes on.
func (l Lines) Next(from, to Part, sameClock bool) Lines {
	old, joined := split(from)
	parts, joins := split(to)
	next := Lines{make([]line, len(parts.rules)), max(l.made, uint64(len(old.rules)))}
	for j, i := range match(old.kinds, parts.kinds) {
		if i >= 0 && sameClock && (joins || !joined || old.kinds[i] == parts.kinds[j]) {
			next.of[j] = l.at(i)
			if old.limits[i] == parts.limits[j] {
				continue
			}
			if _, ok := old.rules[i].ConvertTicket(Ticket{}, parts.rules[j]); ok {
				next.of[j].changes++
				continue
			}
		}
		next.of[j] = line{number: next.made}
		next.made++
	}
	return next
}

// convert converts the ticket of a part to a later version of it. It reports false if they are not of
// one line.
func (l line) convert(t Ticket, from Rule, next line, to Rule) (Ticket, bool) {
	switch {
	case l.number != next.number:
		return Ticket{}, false
	case l.changes == next.changes:
		return t, true
	}
	return from.ConvertTicket(t, to)
}

// Convert converts the Receipt to a later version of the limit. It reports false if nothing can be
// given back in that.
func (c Receipt) Convert(from Part, was Lines, to Part, is Lines) (next Receipt, ok bool) {
	old, joined := from.Rule.(*allRule)
	parts, joins := to.Rule.(*allRule)
	if !joined && !joins {
		next.ticket, ok = was.at(0).convert(c.ticket, from.Rule, is.at(0), to.Rule)
		return next, ok
	}
	if !joined {
		old, _ = split(from)
	}
	if !joins {
		parts, _ = split(to)
	} else {
		next.parts = new(partTickets)
	}
	for j, r := range parts.rules {
		t, given := Ticket{}, false
		for i := range old.rules {
			switch {
			case was.at(i).number != is.at(j).number:
			case !joined:
				t, given = was.at(i).convert(c.ticket, old.rules[i], is.at(j), r)
			case !c.parts.lost[i]:
				t, given = was.at(i).convert(c.parts.tickets[i], old.rules[i], is.at(j), r)
			}
		}
		if ok = ok || given; joins {
			next.parts.tickets[j], next.parts.lost[j] = t, !given
		} else {
			next.ticket = t
		}
	}
	return next, ok
}
