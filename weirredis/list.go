package weirredis

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"

	"github.com/weirflow/weir"
)

// A Scanner lists the keys of a server or a Cluster, in steps of bounded size.
type Scanner interface {
	// Scan calls each with keys that match a pattern, as in KEYS. A key may come twice.
	Scan(ctx context.Context, pattern string, each func(keys []string) error) error
}

// headScript reads the beginning of a state, where its limit is.
const headScript = "return redis.call('GETRANGE', KEYS[1], 0, 1023)"

// StateKeys calls each, in no order, with the keys that have a state under a name; under is the position
// among the limits of the one that the state was written under, or -1 for another one. Each key comes once;
// one that is added or removed meanwhile may be missing. An error of each ends it. It remembers 8 bytes of
// each key.
func (s *Store) StateKeys(ctx context.Context, scan Scanner, name string, of []weir.Limit, each func(key string, under int) error) error {
	var heads []string
	for _, l := range of {
		c, err := s.limits.Of(l, compile)
		if err != nil {
			return err
		}
		heads = append(heads, string(appendString(nil, c.def)))
	}
	script := &Script{Source: headScript}
	seed, seen := maphash.MakeSeed(), map[uint64]struct{}{}
	return scan.Scan(ctx, s.pattern(name), func(at []string) error {
		var keys []string
		var calls []Call
		for _, redisKey := range at {
			key, ok := s.keyOf(name, redisKey)
			if !ok {
				continue
			}
			h := maphash.String(seed, key)
			if _, twice := seen[h]; twice {
				continue
			}
			seen[h] = struct{}{}
			keys = append(keys, key)
			calls = append(calls, Call{Script: script, Send: true, Keys: []string{redisKey}})
		}
		replies := make([]Reply, len(calls))
		if len(calls) > 0 {
			s.evaler.EvalAll(ctx, calls, replies)
		}
		for i, r := range replies {
			if errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, context.DeadlineExceeded) {
				return r.Err
			}
			if r.Err == nil && r.Text == "" {
				continue // it has expired meanwhile
			}
			under := -1
			for n, head := range heads {
				if r.Err == nil && strings.HasPrefix(r.Text, head) {
					under = n
					break
				}
			}
			if err := each(keys[i], under); err != nil {
				return err
			}
		}
		return nil
	})
}
