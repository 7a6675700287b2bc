package keyed

import (
	"time"

	"github.com/weirflow/weir"
)

// An override is what holds for a key in place of the limit.
type override struct {
	until int64 // the end of the clock for one that stays
}

// rest is how long it holds on.
func (o *override) rest(now int64) time.Duration { return until(now, o.until) }

// overridden answers for a key that has an override in force.
func (x *entry[K]) overridden(g *grip[K], cost int64) (d weir.Decision, ok bool) { return d, false }
