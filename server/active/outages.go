package active

import (
	"log/slog"
	"time"

	"github.com/weirflow/weir/failover"
)

// quiet is how long the log says nothing about further outages of a shard after it told of one: a
// shard that comes and goes fills no log.
const quiet = 10 * time.Second

// mostShardLogs is how many shards are remembered: those that are back are forgotten first.
const mostShardLogs = 1024

// outageLog logs the outages of a store: one line when a shard goes down, and one when it is back.
// Its calls come one at a time.
type outageLog struct {
	log      *slog.Logger
	store    string
	fallback string
	stats    func() failover.Stats
	shards   map[string]*shardLog
}

// shardLog is what was logged of a shard.
type shardLog struct {
	down    bool // as the log says
	told    time.Time
	since   time.Time // the latest outage
	outages int       // since the last line that says down
}

// tell takes in a transition. A shard that goes down within the time of quiet is logged when that has
// passed, if it is still down: the probes in between are transitions too.
func (o *outageLog) tell(shard string, from, to failover.State) {
	now := time.Now()
	d := o.of(shard)
	if from == failover.Closed {
		d.since = now
		d.outages++
	}
	switch isDown := to != failover.Closed; {
	case isDown && !d.down && (d.told.IsZero() || now.Sub(d.told) >= quiet):
		attributes := []any{"store", o.store, "on_failure", o.fallback}
		if d.outages > 1 {
			attributes = append(attributes, "outages", d.outages)
		}
		d.down, d.told, d.outages = true, now, 0
		if shard == "" {
			o.log.Warn("store unavailable: its limits use their fallback", attributes...)
			return
		}
		stats := o.stats()
		o.log.Warn("store shard unavailable: limits use their fallback for its keys",
			append(attributes, "shard", shard, "down", len(stats.Down), "shards", stats.Shards)...)
	case !isDown && d.down:
		d.down = false
		after := now.Sub(d.since).Round(time.Millisecond).String()
		if shard == "" {
			o.log.Info("store is back", "store", o.store, "after", after)
			return
		}
		stats := o.stats()
		o.log.Info("store shard is back, or its keys are with another", "store", o.store, "shard", shard, "after", after,
			"down", len(stats.Down), "shards", stats.Shards)
	}
}

// of returns what was logged of a shard.
func (o *outageLog) of(shard string) *shardLog {
	d := o.shards[shard]
	if d != nil {
		return d
	}
	if len(o.shards) >= mostShardLogs {
		for name, old := range o.shards {
			if !old.down {
				delete(o.shards, name)
			}
		}
	}
	d = &shardLog{}
	o.shards[shard] = d
	return d
}
