package weirrueidis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
)

// scanStep is about how many keys the server looks at in one command of Scan.
const scanStep = 500

// scanWithin is the time limit for one command of Scan.
const scanWithin = 5 * time.Second

// Scan calls each with the keys that match a pattern (as in KEYS), some at a time. On a Cluster, it
// reads one master after the other. No command looks at more than some hundred keys, so a server with
// millions of them is held up by none. A key may come twice, and one that is added or removed meanwhile
// may be missing. An error of each ends it.
func (s *Store) Scan(ctx context.Context, pattern string, each func(keys []string) error) error {
	client, err := s.link.get(ctx)
	if err != nil {
		return err
	}
	masters := []rueidis.Client{client}
	if s.link.addr.Mode == weirredis.Cluster {
		if masters, err = mastersOf(ctx, client); err != nil {
			return err
		}
	}
	for _, master := range masters {
		for cursor := uint64(0); ; {
			step, cancel := context.WithTimeout(ctx, scanWithin)
			entry, err := master.Do(step, master.B().Scan().Cursor(cursor).Match(pattern).Count(scanStep).Build()).AsScanEntry()
			cancel()
			if err != nil {
				return fmt.Errorf("weirrueidis: SCAN: %w", said(err))
			}
			if len(entry.Elements) > 0 {
				if err := each(entry.Elements); err != nil {
					return err
				}
			}
			if cursor = entry.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// mastersOf returns the clients of all nodes that serve slots.
func mastersOf(ctx context.Context, client rueidis.Client) (all []rueidis.Client, err error) {
	ranges, err := evaler{client}.Slots(ctx)
	if err != nil {
		return nil, err
	}
	nodes := client.Nodes()
	var seen []string
	for _, r := range ranges {
		if slices.Contains(seen, r.Node) {
			continue
		}
		seen = append(seen, r.Node)
		node := nodes[r.Node]
		if node == nil {
			return nil, fmt.Errorf("weirrueidis: the client does not know the master %s: its keys cannot be listed", r.Node)
		}
		all = append(all, node)
	}
	if len(all) == 0 {
		return nil, errors.New("weirrueidis: no node serves any slot")
	}
	return all, nil
}

// StateKeys is weirredis.Store.StateKeys with Scan.
func (s *Store) StateKeys(ctx context.Context, name string, of []weir.Limit, each func(key string, under int) error) error {
	return s.Store.StateKeys(ctx, s, name, of, each)
}
