package weirredis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Beat tells the others that the node of that id lives, and is to be believed to for ttl, and returns how many do, this one among them. A ttl of 0
// is for a node that stops. Ids are at most 128 bytes long.
func (s *Store) Beat(ctx context.Context, id string, ttl time.Duration) (nodes int, err error) {
	if id == "" || len(id) > 128 || ttl < 0 {
		return 0, fmt.Errorf("weirredis: %q for %v is no node: an id has 1 to 128 bytes, and its time is not below 0", id, ttl)
	}
	c := Call{
		Script: s.scripts.nodes(),
		Keys:   []string{s.opts.Prefix + "{nodes}"},
		Args:   []string{id, strconv.FormatInt(int64(ttl/tick), 10)},
	}
	text, err := s.evaler.Eval(ctx, c)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.Send = true
		text, err = s.evaler.Eval(ctx, c)
	}
	if err != nil {
		return 0, fmt.Errorf("weirredis: %w", err)
	}
	if nodes, err = strconv.Atoi(text); err != nil {
		return 0, errAnswer
	}
	return nodes, nil
}

// Ping asks the server whether it is there and runs scripts. It charges nothing. One server, unlike a Cluster, is readied by it again for what Warm has
// readied it for: one that was restarted lacks the scripts, and another that took over may have another clock.
func (s *Store) Ping(ctx context.Context) error {
	if kinds := s.warmed.Load(); kinds != nil && !s.opts.Cluster {
		return s.ready(ctx, *kinds)
	}
	_, err := s.Beat(ctx, "ping", 0)
	return err
}
