package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir"
)

// StateName is the name under which the limit's states are kept in its store: its own, and what its key is made of, as in
// "per-user@client.ip,header.X-User": with another key under the same name, the address of one client could otherwise be the header field of
// another. One that is a shadow has states of its own, also where other nodes enforce it.
func (l *Limit) StateName() string {
	name := l.Name
	if key := l.keyName(); key != "" {
		name += "@" + key
	}
	if l.Shadow {
		name += "/shadow"
	}
	return name
}

// maxKeyName is how long what a key is made of may be, in bytes, to be kept as it is: it is part of each key in the store.
const maxKeyName = 48

// keyName says what the key is made of, in one way for each list of parts: the parts, or, where these are long or could be mistaken, ~ and the beginning of
// their SHA-256.
func (l *Limit) keyName() string {
	var texts []string
	var encoded []byte
	plain := true
	for _, p := range l.keyParts() {
		text := p.String()
		texts, encoded = append(texts, text), appendKey(encoded, text)
		plain = plain && !strings.ContainsFunc(text, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
		})
	}
	if name := strings.Join(texts, ","); plain && len(name) <= maxKeyName {
		return name
	}
	sum := sha256.Sum256(encoded)
	return "~" + fmt.Sprintf("%x", sum[:16])
}

// A Restart is a limit that another policy resets: what was used of it no longer counts.
type Restart struct {
	Limit string
	Why   string // what changed
}

// Restarts returns the limits of both policies that are reset when next replaces p, in the order of next. All others keep what was used, also if
// their parameters change.
func (p *Policy) Restarts(next *Policy) (all []Restart) {
	for i := range next.Limits {
		l := &next.Limits[i]
		if old := p.limit(l.Name); old != nil {
			if why := old.restarts(l, p.store(old.Store), next.store(l.Store)); why != "" {
				all = append(all, Restart{l.Name, why})
			}
		}
	}
	return all
}

// restarts says why a changed limit reset; nothing where it does not.
func (l *Limit) restarts(next *Limit, from, to *Store) string {
	switch {
	case l.Zone != next.Zone:
		return "it shares the state of another zone, or has a state of its own"
	case l.Zone != "":
		return zoneRestarts(l, next)
	case !slices.Equal(l.keyParts(), next.keyParts()):
		return "its key is made of other parts"
	case l.Shadow != next.Shadow:
		return "shadow states and others are apart"
	case l.isConcurrency() != next.isConcurrency():
		return "places and charges are not the same"
	case (from == nil) != (to == nil):
		return "it is kept in a store, and was in memory, or the other way round"
	case from == nil && (l.MaxKeys != next.MaxKeys || l.WhenFull != next.WhenFull):
		return "its keys are kept in a new table, for another max_keys or when_full"
	case from == nil:
		return ""
	case !samePlace(from, to):
		return "its store is at another address"
	case from.prefix() != to.prefix():
		return "its store has another prefix"
	case l.whereabouts() != next.whereabouts():
		return "its tag is another one"
	}
	return ""
}

func (l *Limit) isConcurrency() bool {
	_, ok := l.Limit.(weir.Concurrency)
	return ok
}

// place is where the states of a store are.
func (s *Store) place() Place {
	if s.Place == (Place{}) {
		return Place{Hosts: s.URL}
	}
	return s.Place
}

// samePlace reports whether two stores keep the same states under the same prefix: users, passwords and TLS do not matter, and of several hosts
// one in common is enough.
func samePlace(a, b *Store) bool {
	at, bt := a.place(), b.place()
	hosts := strings.Split(bt.Hosts, ",")
	return at.Rest == bt.Rest && slices.ContainsFunc(strings.Split(at.Hosts, ","), func(h string) bool { return slices.Contains(hosts, h) })
}

// Calls returns the limits of a store that one request may ask it about together, and each of them alone, so that the store can be readied for them.
func (p *Policy) Calls(store string) (all [][]weir.Limit) {
	for i := range p.Limits {
		if l := &p.Limits[i]; l.Store == store && l.Limit != nil && !l.isConcurrency() {
			all = append(all, []weir.Limit{l.Limit})
		}
	}
	for i := range p.Routes {
		var together []weir.Limit
		for _, name := range p.Routes[i].Limits {
			if l := p.limit(name); l != nil && l.Store == store && !l.Shadow && !l.queues() && !l.isConcurrency() {
				together = append(together, l.Limit)
			}
		}
		if len(together) > 1 {
			all = append(all, together)
		}
	}
	return all
}

// defaultPrefix is what the keys of a store begin with whose policy names no prefix.
const defaultPrefix = "weir:"

func (s *Store) prefix() string {
	if s.Prefix == "" {
		return defaultPrefix
	}
	return s.Prefix
}
