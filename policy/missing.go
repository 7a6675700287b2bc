package policy

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// mayBeMissing reports whether a request can come without the part. What every request has cannot,
// nor can what the route's match bound.
func (p part) mayBeMissing() bool {
	return p.kind == partHeader || p.kind == partQuery || p.kind == partCookie
}

// missing warns of a key by which all clients that send none of its parts share one state, where
// nobody has said that this is meant.
func (c *checker) missing(l *Limit) {
	if l.OnMissing != "" {
		return
	}
	var parts []string
	for _, text := range l.Key {
		p, err := parsePart(text)
		switch {
		case err != nil || !p.mayBeMissing() && p.kind != partConst:
			return
		case p.kind != partConst: // a const tells nobody apart
			parts = append(parts, text)
		}
	}
	if len(parts) > 0 {
		c.warn(fmt.Sprintf("all requests without %s share one key: clients that send none use up each other's limit", strings.Join(parts, " and ")),
			"write on_missing: skip (they are not limited), deny (they are refused), or key (they share one key, as now)", "limits", l.Name, "key")
	}
}

// presence notes which parts of a limit's key requests have had.
type presence struct {
	asked atomic.Bool
	there []atomic.Bool // for each part
}

func (p *presence) note(i int) {
	if !p.there[i].Load() { // a store that changes nothing would still be one
		p.there[i].Store(true)
	}
}

// A MissingPart is a part of a limit's key that no request had which met the limit.
type MissingPart struct{ Limit, Part string }

// Missing returns the parts of keys that no request had, of the limits that some request met, where
// Options.Parts is set.
func (e *Engine) Missing() (all []MissingPart) {
	for _, l := range e.limits {
		if l.presence == nil || !l.presence.asked.Load() || l.isRest() {
			continue
		}
		for i, text := range l.Key {
			if !l.presence.there[i].Load() {
				all = append(all, MissingPart{l.Name, text})
			}
		}
	}
	return all
}
