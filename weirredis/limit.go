package weirredis

import (
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/scripted"
)

const (
	most = scripted.Most
	tick = scripted.Tick
)

// A limit is a weir.Limit as the scripts read it.
type limit struct {
	def      string // version, algorithm and parameters, in MessagePack
	kinds    kindSet
	capacity int64
	names    []string // of the parts of an All
	short    *brief   // nil if no short script knows it

	calendars []*calendar // whose windows it needs

	beside atomic.Pointer[beside] // another version of it that was met lately
}

// beside is that keys held a state of another version of a limit: until then, calls about the limit
// use the script that knows all algorithms at once, and send the other version's calendars, and so
// take one round trip and not several.
type beside struct {
	until     time.Time
	calendars []*calendar
}

// besideFor is how long another version is expected after it was met.
const besideFor = 10 * time.Second

// meet notes that a key held a state of another version, which goes by such calendars.
func (l *limit) meet(calendars ...*calendar) {
	b := &beside{until: time.Now().Add(besideFor), calendars: calendars}
	if before := l.met(); before != nil {
		b.calendars = append(b.calendars, before.calendars...)
	}
	l.beside.Store(b)
}

// met is the other version that was met lately; nil if none was.
func (l *limit) met() *beside {
	if b := l.beside.Load(); b != nil && time.Now().Before(b.until) {
		return b
	}
	return nil
}

// compile checks a limit and encodes it for the scripts.
func compile(l weir.Limit) (*limit, error) {
	p, err := weir.Prepare(l, tick)
	if err != nil {
		return nil, err
	}
	c := &limit{capacity: p.Peek(nil, 0, 0).Limit}
	parts, names := weir.Parts(l), weir.PartNames(l)
	if names == nil {
		if c.def, c.kinds, err = c.define(l); err != nil {
			return nil, err
		}
		return c, nil
	}
	def := appendInt(appendInt(appendArray(nil, 2+len(parts)), version), kindAll)
	c.kinds = 1 << kindAll
	c.names = names
	for _, part := range parts {
		text, kinds, err := c.define(part)
		if err != nil {
			return nil, err
		}
		def = appendString(def, text)
		c.kinds |= kinds
	}
	c.def, c.short = string(def), nil // the short scripts are for a limit alone
	return c, nil
}

// version is the version of states and arguments.
const version = 1

// maxEntries is how many charges a log may have in Redis: each charge copies them.
const maxEntries = 1 << 14

// reading is how the scripts read limits.
var reading = scripted.Reader{Package: "weirredis", Count: scripted.Counting("Redis", maxEntries)}

// define encodes a limit that is no All: version, algorithm, parameters, and the name of its
// calendar, if it has one.
func (l *limit) define(given weir.Limit) (string, kindSet, error) {
	d, err := reading.Define(given)
	if err != nil {
		return "", 0, err
	}
	var name []string // of a calendar
	if d.Align != "" {
		cal, err := scripted.NewCalendar(d.Align, appendInt)
		if err != nil {
			return "", 0, err
		}
		l.calendars = append(l.calendars, cal)
		name = []string{cal.Name}
	}
	def := appendInt(appendInt(appendArray(nil, 2+len(d.Numbers)+len(name)), version), int64(d.Script))
	for _, v := range d.Numbers {
		def = appendInt(def, v)
	}
	for _, text := range name {
		def = appendString(def, text)
	}
	switch d.Script {
	case kindBucket:
		l.short = shorten(string(def), d.Numbers)
	case kindFixed:
		l.short = shortenFixed(string(def), d.Numbers)
	}
	return string(def), 1 << d.Script, nil
}

// Check returns why a limit cannot be kept in Redis: parameters that the scripts could not count
// exactly, or an algorithm that they do not know.
func Check(l weir.Limit) error {
	_, err := compile(l)
	return err
}

// Keeps implements weir.Keeper: it is Check.
func (s *Store) Keeps(l weir.Limit) error { return Check(l) }
