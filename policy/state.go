package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir"
)

// StateName returns the name under which the limit's states are kept in its store: the limit's name
// and the parts of its key, such as "per-user@client.ip,header.X-User". With the name alone, a
// changed key could mix up states: the address of one client could equal the header field of
// another. A shadow limit has states of its own, even if other nodes enforce the limit.
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

// maxKeyName limits the length of keyName, in bytes, because it is a part of each key in the store.
const maxKeyName = 48

// keyName describes the parts of the key, with one text for each list of parts. If the text is long
// or ambiguous, keyName returns ~ and the beginning of its SHA-256.
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

// A Restart is a limit that another policy resets, so that what was used no longer counts.
type Restart struct {
	Limit string
	Why   string // what changed
}

// Restarts returns the limits of both policies that are reset when next replaces p, in the order of
// next. All other limits keep what was used, even if their parameters change.
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

// restarts returns why a changed limit is reset, or "" if it is not.
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
	case l.slotSource() != next.slotSource():
		return "its tag is another one"
	}
	return ""
}

func (l *Limit) isConcurrency() bool {
	_, ok := concurrencyOf(l.Limit)
	return ok
}

// place returns where the states of a store are.
func (s *Store) place() Place {
	if s.Place == (Place{}) {
		return Place{Hosts: s.URL}
	}
	return s.Place
}

// samePlace reports whether two stores keep the same states under the same prefix. Users, passwords
// and TLS do not matter. Of several hosts, one in common is enough.
func samePlace(a, b *Store) bool {
	at, bt := a.place(), b.place()
	hosts := strings.Split(bt.Hosts, ",")
	return at.Rest == bt.Rest && slices.ContainsFunc(strings.Split(at.Hosts, ","), func(h string) bool { return slices.Contains(hosts, h) })
}

// Calls returns the groups of limits of a store that one request may evaluate together, and each
// limit alone. A store can prepare for these calls.
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

// defaultPrefix is the default of Store.Prefix.
const defaultPrefix = "weir:"

func (s *Store) prefix() string {
	if s.Prefix == "" {
		return defaultPrefix
	}
	return s.Prefix
}
