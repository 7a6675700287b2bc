package weirredis

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Beat is a heartbeat of the node of that id, which counts for ttl. It returns how many nodes are
// alive, this one included. A node that stops sends a ttl of 0. An id has at most 128 bytes.
func (s *Store) Beat(ctx context.Context, id string, ttl time.Duration) (nodes int, err error) {
	if id == "" || len(id) > 128 || ttl < 0 {
		return 0, fmt.Errorf("weirredis: %q for %v is no node: an id has 1 to 128 bytes, and its time is not below 0", id, ttl)
	}
	text, err := s.run(ctx, Call{
		Script: s.scripts.nodes(),
		Keys:   []string{s.opts.Prefix + "{nodes}"},
		Args:   []string{id, strconv.FormatInt(int64(ttl/tick), 10)},
	})
	if err != nil {
		return 0, err
	}
	if nodes, err = strconv.Atoi(text); err != nil {
		return 0, errAnswer
	}
	return nodes, nil
}

// run makes a call that carries no charges, again with its script if the server lacks that.
func (s *Store) run(ctx context.Context, c Call) (string, error) {
	text, err := s.evaler.Eval(ctx, c)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.Send = true
		text, err = s.evaler.Eval(ctx, c)
	}
	if err != nil {
		return "", fmt.Errorf("weirredis: %w", err)
	}
	return text, nil
}

// Ping tests whether the server would carry out charges: whether it is reachable, runs scripts and
// takes writes, which a replica or a server with a full disk or memory does not. It charges nothing. On
// a single server it also repeats the last Warm: a server that was restarted lacks the scripts, and
// one that took over may have another clock. On a Cluster it tests one of the nodes; see PingShard.
func (s *Store) Ping(ctx context.Context) error {
	s.askAgain(askAtMost) // on a Cluster whose nodes are not known yet
	return s.ping(ctx, "nodes", func(string) bool { return !s.opts.Cluster })
}

// ping is Ping for the slot of a tag. It repeats the last Warm for the tags that warms reports.
func (s *Store) ping(ctx context.Context, tag string, warms func(tag string) bool) error {
	ready := make(chan error, 1)
	if kinds := s.warmed.Load(); kinds != nil {
		// At the same time: over a slow link, one trip may take most of the deadline.
		go func() { ready <- s.ready(ctx, *kinds, warms) }()
	} else {
		ready <- nil
	}
	_, err := s.run(ctx, Call{Script: s.scripts.ping(), Keys: []string{s.opts.Prefix + "{" + tag + "}:ping"}})
	return cmp.Or(<-ready, err)
}
