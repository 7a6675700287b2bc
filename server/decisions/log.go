package decisions

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/asciijson"
	"github.com/weirflow/weir/policy"
)

// LogOptions say which decisions are logged, and how.
type LogOptions struct {
	Filter Filter
	Keys   bool   // log keys, and not their hashes
	Secret string // that keys are hashed with; default: one of this process
}

// logEvery is how often decisions are logged.
const logEvery = time.Second / 2

// logging writes decisions into a log until it ends.
type logging struct {
	watcher *Watcher
	end     context.CancelFunc
	work    sync.WaitGroup
}

// LogTo logs decisions from now on as the options say, in place of an earlier LogTo; with nil, none. Requests
// wait for no log: what is beyond the filter's PerSecond is counted, and the count is logged.
func (o *Observers) LogTo(log *slog.Logger, options *LogOptions) {
	o.logMu.Lock()
	defer o.logMu.Unlock()
	before := o.logging
	o.logging = nil
	var old, watcher *Watcher
	if before != nil {
		old = before.watcher
	}
	if options != nil {
		if secret := []byte(options.Secret); len(secret) > 0 {
			o.secret.Store(&secret)
		}
		watcher = newWatcher(o, options.Filter)
		watcher.logs = true // however many clients watch, there is room for it
		ctx, end := context.WithCancel(context.Background())
		next := &logging{watcher: watcher, end: end}
		next.work.Go(func() { o.log(ctx, watcher, log, options.Keys) })
		o.logging = next
	}
	o.mu.Lock()
	o.replace(old, watcher)
	o.mu.Unlock()
	if before != nil {
		before.end()
		before.work.Wait()
	}
}

// log writes what a watcher gets until the context ends.
func (o *Observers) log(ctx context.Context, w *Watcher, log *slog.Logger, keys bool) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-tick.C:
		case <-ctx.Done():
			ended = true
		}
		events, lost := w.Next(time.Now())
		for i := range events {
			log.LogAttrs(context.Background(), slog.LevelInfo, "decision", o.attributes(&events[i], keys)...)
		}
		if lost != (Lost{}) {
			log.LogAttrs(context.Background(), slog.LevelInfo, "decisions left out", slog.Uint64("refused", lost.Refused), slog.Uint64("others", lost.Others))
		}
		if ended {
			return
		}
	}
}

// attributes are the fields of a logged decision.
func (o *Observers) attributes(e *Event, keys bool) []slog.Attr {
	all := []slog.Attr{slog.Time("at", e.At), slog.String("decision", e.Outcome.String()), slog.String("limit", e.Limit)}
	if e.Key != "" {
		parts, err := policy.DecodeKey(e.Key)
		if keys && err == nil {
			all = append(all, slog.Any("key", asciijson.Texts(parts)))
		} else {
			all = append(all, slog.String("key_hash", o.Hash(e.Limit, e.Key)))
		}
	}
	if e.Match != "" {
		all = append(all, slog.String("route", e.Match))
	}
	all = append(all, slog.Int64("cost", e.Cost), slog.Int64("capacity", e.Decision.Limit), slog.Int64("remaining", e.Decision.Remaining))
	if after := e.Decision.RetryAfter; e.IsRefused() && after != weir.Never {
		all = append(all, slog.Duration("retry_after", after))
	}
	if e.Delay > 0 {
		all = append(all, slog.Duration("delay", e.Delay))
	}
	if s := e.Decision.Source; s != weir.SourceLocal {
		all = append(all, slog.String("source", s.String()))
	}
	if e.Shadow {
		all = append(all, slog.Bool("shadow", true))
	}
	if e.Banned {
		all = append(all, slog.Bool("banned", true))
	}
	return all
}
