package weirsql

import (
	"errors"
	"strconv"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/scripted"
)

const (
	most = scripted.Most
	tick = scripted.Tick
)

// maxEntries is how many charges a log may have: each charge writes them all.
const maxEntries = 1 << 11

// reader is how the functions read limits: decided are their scripts, by number.
var (
	reader  = scripted.Reader{Package: "weirsql", Count: scripted.Counting("PostgreSQL", maxEntries), Kept: func(script int) bool { return script < len(decided) && decided[script] }}
	decided = [...]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}
)

// A limit is a weir.Limit as the functions read it.
type limit struct {
	def      string // its algorithm and parameters, and the name of its calendar
	capacity int64
	calendar *calendar // nil for one without
	plain    []int64   // what take.sql has to know of it; nil if its charges are not for take
}

// The bounds of take.sql, within which no product is too large for a bigint.
const (
	maxPlainTicks = 1000
	maxPlainFull  = 1 << 50
)

// plain returns the numbers that take.sql has to know of a limit: parameters 6 to 9 of bucket.sql, or 0, length, limit
// and type of a window. Nil: the limit is neither a TokenBucket or LeakyBucket that starts full nor a FixedWindow
// without a calendar, or its numbers are too large.
func plain(d scripted.Definition) []int64 {
	if d.Script == 3 && d.Numbers[0] < 2 && max(d.Numbers[1], d.Numbers[2]) <= maxPlainFull {
		return []int64{0, d.Numbers[2], d.Numbers[1], d.Numbers[0]}
	}
	if d.Script != 1 || d.Numbers[0] > 1 {
		return nil
	}
	kind, n, p, size, parameter := d.Numbers[0], d.Numbers[1], d.Numbers[2], d.Numbers[3], d.Numbers[4]
	switch {
	case kind == 0 && parameter > 0: // it does not start full
		return nil
	case kind == 0:
		parameter = size
	}
	if n > maxPlainTicks || p < 1 || max(size, parameter) > maxPlainFull/p {
		return nil
	}
	return []int64{n, p, size * p, parameter * p}
}

// compile checks a limit and encodes it for the functions.
func compile(l weir.Limit) (*limit, error) {
	prepared, err := weir.Prepare(l, tick)
	if err != nil {
		return nil, err
	}
	if weir.PartNames(l) != nil {
		return nil, errors.New("weirsql: an All cannot be kept in PostgreSQL: charge its limits as a group")
	}
	d, err := reader.Define(l)
	if err != nil {
		return nil, err
	}
	c := &limit{capacity: prepared.Peek(nil, 0, 0).Limit, plain: plain(d)}
	words := []string{strconv.Itoa(d.Script)}
	for _, v := range d.Numbers {
		words = append(words, strconv.FormatInt(v, 10))
	}
	c.def = "{" + strings.Join(words, ",") + "}"
	if d.Align != "" {
		if c.calendar, err = scripted.NewCalendar(d.Align, number); err != nil {
			return nil, err
		}
		c.def += c.calendar.Name
	}
	return c, nil
}

// Check returns why a limit cannot be kept in PostgreSQL: parameters that could not be counted exactly,
// or an algorithm that the functions do not know.
func Check(l weir.Limit) error {
	_, err := compile(l)
	return err
}

// Keeps implements weir.Keeper: it is Check.
func (s *Store) Keeps(l weir.Limit) error { return Check(l) }
