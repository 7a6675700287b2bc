package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/rules"
)

// A tag determines the slot of a state on a store that spreads its keys over nodes. States with the
// same tag are in the same slot, and a group of them is charged in one atomic step. A tag is a part
// of the key, so that each key stays in one slot, or a fixed text.

// maxTag is the longest tag, in bytes, that is used as it is. A longer tag is replaced by its
// SHA-256, in as many hexadecimal digits.
const maxTag = 2 * sha256.Size

// boundTag returns a tag of limited length.
func boundTag(value string) string {
	if len(value) <= maxTag {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return fmt.Sprintf("%x", sum)
}

// noPart is the position of a tag that is no part of the key.
const noPart = -1

// taggedBy returns a limit's tag: its position in the key, or the text for all keys. ok is false if
// there is no tag, or an invalid one.
func (l *Limit) taggedBy() (index int, text string, ok bool) {
	tag, err := parsePart(l.Tag)
	if err != nil {
		return noPart, "", false
	}
	for i, written := range l.Key {
		if p, err := parsePart(written); err == nil && p == tag {
			return i, "", true
		}
	}
	return noPart, boundTag(tag.name), tag.kind == partConst
}

// Tags returns the function that finds the tag of a key for one of the policy's stores. Its
// arguments are a limit's StateName and the key. For limits without a tag, and for shadow limits,
// the tag is the key. Tags returns nil if no limit has a tag.
func (p *Policy) Tags(store string) func(name, key string) string {
	places := map[string]func(key string) string{}
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Store != store || l.Shadow {
			continue
		}
		if index, text, ok := l.taggedBy(); ok {
			places[l.StateName()] = func(key string) string {
				if index == noPart {
					return text
				}
				return tagIn(key, index)
			}
		}
	}
	if len(places) == 0 {
		return nil
	}
	return func(name, key string) string {
		if place := places[name]; place != nil {
			return place(key)
		}
		return key
	}
}

// tagIn returns the tag at a position among a key's parts. A key that was replaced by its hash has
// the tag at its end: see placed.
func tagIn(key string, index int) string {
	if len(key) > sha256.Size && key[0] == hashed {
		return key[1+sha256.Size:]
	}
	parts, err := DecodeKey(key)
	if err != nil || index >= len(parts) {
		return key // not a key of this package
	}
	return boundTag(parts[index])
}

// keyInStore returns the key for a store that needs to find the tag. A key that was replaced by its
// hash gets the tag appended.
func (l *limit) keyInStore(key []byte, r *request) string {
	if l.tag == noPart || len(key) == 0 || key[0] != hashed {
		return string(key)
	}
	value, _, _ := l.value(l.tag, r)
	return string(key) + boundTag(value)
}

// tag checks a limit's tag.
func (c *checker) tag(l *Limit) {
	if l.Tag == "" {
		return
	}
	path := []string{"limits", l.Name, "tag"}
	if _, err := parsePart(l.Tag); err != nil {
		c.wrong(err.Error(), nearestPart(l.Tag), path...)
		return
	}
	switch _, _, ok := l.taggedBy(); {
	case !ok && len(l.Key) == 0:
		c.wrong(fmt.Sprintf("%s is no part of the key: the limit is one for all, and would be kept once for each %s", l.Tag, l.Tag),
			"write const.TEXT, the same for all limits that are to be together", path...)
	case !ok:
		c.wrong(fmt.Sprintf("%s is no part of the key: what one key has used would be kept once for each %s", l.Tag, l.Tag),
			fmt.Sprintf("write %s, which the key has, or const.TEXT", strings.Join(l.Key, " or ")), path...)
	case l.Store == "":
		c.wrong("the limit is in no store that a tag could be for", "take the tag out, or name a store", path...)
	}
}

// slotSource returns what determines the slot of a limit's states. If two limits return the same,
// the states of a request are in the same slot.
func (l *Limit) slotSource() string {
	index, text, ok := l.taggedBy()
	switch {
	case !ok:
		return "key " + l.keyName()
	case index == noPart:
		return "text " + text
	}
	p, _ := parsePart(l.Key[index])
	if p.kind == partConst {
		return "text " + boundTag(p.name)
	}
	return "part " + p.String()
}

// slotsOfRoute warns of limits of a route that are in different slots of one store.
func (c *checker) slotsOfRoute(r *Route, at string) {
	first := map[string]*Limit{}
	warned := map[string]bool{}
	for _, name := range r.Limits {
		l := c.limit(name)
		if l == nil || l.Shadow || l.queues() || l.isConcurrency() {
			continue
		}
		store := c.store(l.Store)
		if store == nil || !store.place().Slots || warned[store.Name] {
			continue
		}
		other := first[store.Name]
		if other == nil {
			first[store.Name] = l
			continue
		}
		if l.slotSource() != other.slotSource() {
			warned[store.Name] = true
			c.warn(fmt.Sprintf("%q and %q are charged one after the other, and given back where one refuses: the store spreads its keys over nodes, and they are in different slots", other.Name, l.Name),
				commonTag(other, l), "routes", at, "limits", strconv.Itoa(slices.Index(r.Limits, name)))
		}
	}
}

// queues reports whether a limit is a queue, which a store charges alone.
func (l *Limit) queues() bool {
	if l.Zone != "" {
		return false // its delays are fixed when a request arrives
	}
	k := rules.KindOf(l.Limit)
	return k != nil && k.Queues
}

// commonTag suggests a tag for two limits.
func commonTag(a, b *Limit) string {
	for _, part := range a.Key {
		if p, err := parsePart(part); err == nil && slices.Contains(b.keyParts(), p) {
			return fmt.Sprintf("give both tag: %s, to have them charged in one step", part)
		}
	}
	return "give both the same tag: const.TEXT, to have them charged in one step, by one node; or take them as they are"
}

// keyParts returns the valid parts of the key.
func (l *Limit) keyParts() (all []part) {
	for _, text := range l.Key {
		if p, err := parsePart(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// prefix checks the prefix of a store's keys.
func (c *checker) prefix(s Store) {
	if s.Prefix == "" {
		return
	}
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/-", r)
	}
	if strings.ContainsFunc(s.Prefix, bad) || len(s.Prefix) > 64 {
		c.wrong(fmt.Sprintf("%.80q is not what keys may begin with", s.Prefix), "write up to 64 letters, digits and . _ : / -, like weir:shop:",
			"stores", s.Name, "prefix")
	}
}
