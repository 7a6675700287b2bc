package active

import (
	"log/slog"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
)

// logged is how many outages of a shard are logged: a shard that comes and goes fills no log.
func logged() weir.Limit { return weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 5} }

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
	limit   *weir.Limiter
	since   time.Time // the latest outage
	cause   error     // of the latest transition that has one
	outages int       // since the last line that says down
}

// tell takes in a transition. A shard that goes down too often to be logged is logged later, if it is
// still down: probes are transitions too.
func (o *outageLog) tell(shard string, from, to failover.State, cause error) {
	now := time.Now()
	d := o.of(shard)
	if cause != nil {
		d.cause = cause
	}
	if from == failover.Closed {
		d.since = now
		d.outages++
	}
	switch isDown := to != failover.Closed; {
	case isDown && !d.down && d.limit.Allow():
		attributes := []any{"store", o.store, "on_failure", o.fallback, "error", d.cause}
		if d.outages > 1 {
			attributes = append(attributes, "outages", d.outages)
		}
		d.down, d.outages = true, 0
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
		o.log.Info("store shard is back, or another shard has its keys", "store", o.store, "shard", shard, "after", after,
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
	d.limit, _ = weir.New(logged()) // a valid limit
	o.shards[shard] = d
	return d
}
