package active

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/failover"
)

// TestOutagesAreLogged: a line for each outage of a shard and one for its end, a few of a shard
// that comes and goes, and in the end what is true.
func TestOutagesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		refused := errors.New("OOM command not allowed")
		o := &outageLog{
			log: slog.New(slog.NewTextHandler(&text, nil)), store: "shared", fallback: "local", shards: map[string]*shardLog{},
			stats: func() failover.Stats { return failover.Stats{Shards: 3, Down: []string{"b:1"}} },
		}
		count := func(what string) int { return strings.Count(text.String(), what) }
		for _, shard := range []string{"a:1", "b:1"} {
			o.tell(shard, failover.Closed, failover.Open, refused)
			for range 100 {
				o.tell(shard, failover.Open, failover.HalfOpen, nil)
				o.tell(shard, failover.HalfOpen, failover.Open, refused)
			}
		}
		if count("store shard unavailable") != 2 || count("shard=b:1 down=1 shards=3") != 1 || count(`error="OOM command not allowed"`) != 2 {
			t.Errorf("%s", text.String())
		}
		o.tell("a:1", failover.HalfOpen, failover.Closed, nil)
		if count("store shard is back") != 1 {
			t.Errorf("%s", text.String())
		}
		text.Reset()
		for range 600 { // it comes and goes for ten minutes, and is down at the end
			o.tell("a:1", failover.Closed, failover.Open, refused)
			<-time.After(500 * time.Millisecond)
			o.tell("a:1", failover.HalfOpen, failover.Closed, nil)
			<-time.After(500 * time.Millisecond)
		}
		if n := count("\n"); n > 2*(60+5) || n < 2*55 || count("outages=10") < 50 {
			t.Errorf("%d lines in ten minutes\n%s", n, text.String())
		}
		o.tell("a:1", failover.Closed, failover.Open, refused)
		for range 20 {
			<-time.After(time.Second)
			o.tell("a:1", failover.HalfOpen, failover.Open, refused)
		}
		if count("unavailable") != count(`error="OOM command not allowed"`) {
			t.Errorf("a line does not say why\n%s", text.String())
		}
		if last := strings.LastIndex(text.String(), "unavailable"); last < strings.LastIndex(text.String(), "is back") {
			t.Errorf("it is down, and the log ends with\n%s", text.String()[last:])
		}

		text.Reset()
		o.tell("", failover.Closed, failover.Open, refused)
		o.tell("", failover.HalfOpen, failover.Closed, nil)
		if count("store unavailable") != 1 || count("store is back") != 1 || count("shard") != 0 {
			t.Errorf("%s", text.String())
		}
	})
}
