package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// glance is the time between two looks at several servers.
const glance = 25 * time.Millisecond

// await asks until the answer is good, one of the servers ends, or the context does. Servers are
// only given where nobody else may start one.
func await(ctx context.Context, all []*RedisServer, ready func(context.Context) error) error {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for _, s := range all {
			select {
			case <-s.ended:
				return s.failed("it ended before the others were ready", errors.Join(s.err, err))
			default:
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// linked reports a replica that has no link to its master yet.
func linked(ctx context.Context, replicas []*RedisServer) error {
	for _, s := range replicas {
		info, err := s.Info(ctx, "replication")
		if err != nil {
			return err
		}
		if info["master_link_status"] != "up" {
			return fmt.Errorf("%s: its link to its master is %q", s, info["master_link_status"])
		}
	}
	return nil
}

// absent reports whether an error means that no server listens.
func absent(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func addrs(all []*RedisServer) (list []string) {
	for _, s := range all {
		list = append(list, s.Addr)
	}
	return list
}

// stopAll stops them at the same time: a master waits for its replicas when it ends.
func stopAll(all []*RedisServer) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pairs makes a map from a reply that has names and values in turn.
func pairs(v any) map[string]string {
	list, _ := v.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}
