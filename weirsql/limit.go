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
	c := &limit{capacity: prepared.Peek(nil, 0, 0).Limit}
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
