package resp

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/internal/tally"
)

// counts are the counters of the face.
type counts struct {
	commands, throttles, admitted, limited tally.Counter // the frequent ones

	errors, unknown, failed, protocol, guesses, slow, handshakes atomic.Uint64
}

// A batch counts the commands that were read together, so that the counters are changed once for all of
// them.
type batch struct{ commands, throttles, admitted, limited, unknown, failed uint64 }

// add counts a command.
func (b *batch) add(cmd *command) {
	if b.commands++; cmd.throttles {
		b.throttles++
	}
}

// count adds what was counted to the counters of the face.
func (c *conn) count() {
	of, to := &c.batch, &c.face.counts
	for _, n := range []struct {
		n  uint64
		to *tally.Counter
	}{{of.commands, &to.commands}, {of.throttles, &to.throttles}, {of.admitted, &to.admitted}, {of.limited, &to.limited}} {
		if n.n > 0 {
			n.to.Add(n.n)
		}
	}
	if n := uint64(c.reply.Errors); n > 0 {
		to.errors.Add(n)
		to.unknown.Add(of.unknown)
		to.failed.Add(of.failed)
		c.reply.Errors = 0
	}
	*of = batch{}
}

var (
	commandsTotal = prometheus.NewDesc("weir_resp_commands_total", "Commands over the Redis protocol: throttle (CL.THROTTLE) and other.", []string{"command"}, nil)
	throttleTotal = prometheus.NewDesc("weir_resp_throttle_total", "Calls of CL.THROTTLE by outcome: admitted, limited, or failed for lack of a decision of the store.", []string{"outcome"}, nil)
	errorsTotal   = prometheus.NewDesc("weir_resp_errors_total", "Replies that were errors.", nil, nil)
	endedTotal    = prometheus.NewDesc("weir_resp_connections_ended_total", "Connections that were ended for a reason: protocol, slow (no command, or only a part of one, in time), or handshake (of TLS).", []string{"reason"}, nil)
	guessesTotal  = prometheus.NewDesc("weir_resp_wrong_passwords_total", "Wrong passwords, and passwords that were not looked at after too many wrong ones.", nil, nil)
	keysGauge     = prometheus.NewDesc("weir_resp_throttle_keys", "Keys of CL.THROTTLE in memory.", nil, nil)
	namedGauge    = prometheus.NewDesc("weir_resp_named_limits", "Limits that clients have created with WEIR.INIT.", nil, nil)
	placesGauge   = prometheus.NewDesc("weir_resp_places_held", "Requests that clients have entered with WEIR.ENTER and not left.", nil, nil)
	evictedTotal  = prometheus.NewDesc("weir_resp_throttle_keys_evicted_total", "Keys of CL.THROTTLE evicted from memory: idle, or full (for lack of room).", []string{"reason"}, nil)
)

// metrics are those of a face.
type metrics struct{ *Face }

// Describe is of prometheus.Collector.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{commandsTotal, throttleTotal, errorsTotal, endedTotal, guessesTotal, keysGauge, namedGauge, placesGauge, evictedTotal} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	c, stats := &m.counts, m.backlogs.Stats()
	throttles := c.throttles.Load()
	counter(commandsTotal, throttles, "throttle")
	counter(commandsTotal, c.commands.Load()-throttles, "other")
	counter(throttleTotal, c.admitted.Load(), "admitted")
	counter(throttleTotal, c.limited.Load(), "limited")
	counter(throttleTotal, c.failed.Load(), "failed")
	counter(errorsTotal, c.errors.Load())
	counter(endedTotal, c.protocol.Load(), "protocol")
	counter(endedTotal, c.slow.Load(), "slow")
	counter(endedTotal, c.handshakes.Load(), "handshake")
	counter(guessesTotal, c.guesses.Load())
	ch <- prometheus.MustNewConstMetric(keysGauge, prometheus.GaugeValue, float64(stats.Keys))
	ch <- prometheus.MustNewConstMetric(namedGauge, prometheus.GaugeValue, float64(len(m.named.current.Load().byName)))
	ch <- prometheus.MustNewConstMetric(placesGauge, prometheus.GaugeValue, float64(m.places.Len()))
	counter(evictedTotal, stats.EvictedIdle, "idle")
	counter(evictedTotal, stats.EvictedFull, "full")
}
