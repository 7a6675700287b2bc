package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// mayBeMissing reports whether a request can lack the part. Parts that every request has, and
// variables of the route's match, are never missing.
func (p part) mayBeMissing() bool {
	return p.kind == partHeader || p.kind == partQuery || p.kind == partCookie || p.kind == partClaim || p.kind == partCustomer || p.kind == partBody
}

// missing warns of a key under which all clients that send none of its parts share one state,
// unless the policy says that this is intended.
func (c *checker) missing(l *Limit) {
	if l.OnMissing != "" || c.onlyByName(l.Name) {
		return
	}
	var parts []string
	for _, text := range l.Key {
		p, err := parsePart(text)
		switch {
		case err != nil || !p.mayBeMissing() && p.kind != partConst, p.kind == partCustomer && c.Plans.knowsAll():
			return
		case p.kind != partConst: // a const is the same for all clients
			parts = append(parts, text)
		}
	}
	if len(parts) > 0 {
		c.warn(fmt.Sprintf("all requests without %s share one key: clients that send none use up each other's limit", strings.Join(parts, " and ")),
			"write on_missing: skip (they are not limited), deny (they are refused), or key (they share one key, as now)", "limits", l.Name, "key")
	}
}

// onlyByName reports whether only clients of services such as listen.http use a limit: they send a
// key with all its parts.
func (c *checker) onlyByName(limit string) bool {
	return len(c.Listen.Others) > 0 && !slices.ContainsFunc(c.Routes, func(r Route) bool { return slices.Contains(r.Limits, limit) })
}

// presence records which parts of a limit's key requests have had.
type presence struct {
	asked atomic.Bool
	there []atomic.Bool // for each part
}

func (p *presence) note(i int) {
	// loading first avoids a store on every request, which would contend for the cache line
	if !p.there[i].Load() {
		p.there[i].Store(true)
	}
}

// A MissingPart is a part of a limit's key that no request to which the limit applied has had.
type MissingPart struct{ Limit, Part string }

// Missing returns the parts of keys that no request has had, for limits that at least one request
// reached. It needs Options.Parts.
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
