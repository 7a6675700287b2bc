package weirredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir"
)

// Warm readies the server for limits: it sends the scripts that the server lacks, and learns its
// clock, so that the first charge takes one round trip and not up to four. Each group is limits
// that one call will be about; calls about each limit alone are included. If callers of the same
// moment make up another group, its first call takes two round trips. On a Cluster, Warm readies
// all nodes. It charges nothing and writes no key. It ends with the context, or after Timeout if
// that has no deadline; the first charges then ready the server.
func (s *Store) Warm(ctx context.Context, groups ...[]weir.Limit) error {
	kinds, err := s.kindsOf(groups)
	if err != nil || len(kinds) == 0 {
		return err
	}
	s.warmed.Store(&kinds)
	if s.topology.mapper != nil && s.topology.current.Load() == nil {
		_ = s.ask(ctx) // calls ask again
	}
	return s.ready(ctx, kinds, func(string) bool { return true })
}

// ready brings the scripts for some algorithms to the server, and learns its clock: on a cluster, to
// the nodes of some tags. A node that does not answer delays no other.
func (s *Store) ready(ctx context.Context, kinds []kindSet, some func(tag string) bool) error {
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, s.opts.Timeout)
	}
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if s.ctx.Err() != nil {
		return errClosed
	}
	calls := map[string][]Call{} // by shard
	for _, k := range kinds {
		for _, tag := range s.everywhere() {
			if some(tag) {
				c := s.nothing(k, tag)
				shard := s.topology.shard(s.slot(c.Keys[0]))
				calls[shard] = append(calls[shard], c)
			}
		}
	}
	errs := make(chan error, len(calls))
	for _, of := range calls {
		go func() { errs <- s.readyNode(ctx, of) }()
	}
	var all error
	for range calls {
		all = errors.Join(all, <-errs)
	}
	return all
}

// readyNode makes calls to one node, and again with the scripts that it lacks.
func (s *Store) readyNode(ctx context.Context, calls []Call) error {
	for tries := 0; len(calls) > 0; tries++ {
		replies := s.evaluate(ctx, calls)
		var lacking []Call
		for i, r := range replies {
			switch err := s.readied(calls[i], r); {
			case err == nil:
			case strings.HasPrefix(err.Error(), "NOSCRIPT") && tries == 0:
				calls[i].Send = true
				lacking = append(lacking, calls[i])
			default:
				return fmt.Errorf("weirredis: %w", err)
			}
		}
		calls = lacking
	}
	return nil
}

// kindsOf returns the scripts for some limits, including those of each limit alone.
func (s *Store) kindsOf(groups [][]weir.Limit) (all []kindSet, err error) {
	add := func(k kindSet) {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	for _, group := range groups {
		var together kindSet
		for _, l := range group {
			c, err := s.limits.Of(l, compile)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCharge, err)
			}
			if c.short != nil {
				add(c.short.script())
			}
			add(c.kinds)
			together |= c.kinds
		}
		if len(group) > 0 {
			add(together)
		}
	}
	return all, nil
}

// nothing is a call without charges that is too late from the start: the answer has a reading of
// the clock.
func (s *Store) nothing(kinds kindSet, tag string) Call {
	b := appendInt(appendInt(appendArray(nil, 5), version), unknown)
	if kinds != short && kinds != shortFixed {
		b = appendInt(appendInt(appendInt(appendArray(nil, 6), version), unknown), 0)
	}
	b = appendArray(appendArray(appendInt(b, 0), 0), 0)
	return Call{Script: s.scripts.of(kinds), Keys: []string{s.opts.Prefix + "{" + tag + "}:warm"}, Args: []string{string(b)}}
}

// readied reads the reply to nothing.
func (s *Store) readied(c Call, r Reply) error {
	if r.Err == nil {
		return errors.New("the server runs what is late")
	}
	text, ok := strings.CutPrefix(r.Err.Error(), "WEIRLATE ")
	if !ok {
		return r.Err
	}
	now, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errAnswer
	}
	s.queues.part(s.slot(c.Keys[0])).clock.set(now)
	return nil
}

// everywhere returns a tag for each part of a cluster's slots, and so at least one for each node;
// for a single server, any tag.
func (s *Store) everywhere() []string {
	if !s.opts.Cluster {
		return []string{"warm"}
	}
	all := make([]string, 0, parts)
	for n, seen := 0, [parts]bool{}; len(all) < parts; n++ {
		tag := "warm" + strconv.Itoa(n)
		if part := slotOf("{"+tag+"}") / (slots / parts); !seen[part] {
			seen[part] = true
			all = append(all, tag)
		}
	}
	return all
}
