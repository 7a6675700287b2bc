package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// glance is the time between two checks of several servers.
const glance = 25 * time.Millisecond

// await repeats a check until it succeeds, one of the servers ends, or the context does. Pass only
// servers that no other goroutine may start.
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

// linked returns an error for a replica that has no link to its master yet.
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

// absent reports whether an error means that no server listens there.
func absent(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func addrs(all []*RedisServer) (list []string) {
	for _, s := range all {
		list = append(list, s.Addr)
	}
	return list
}

// stopAll stops servers at the same time, because a master waits for its replicas when it ends.
func stopAll(all []*RedisServer) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pairs makes a map from a reply that alternates names and values.
func pairs(v any) map[string]string {
	list, _ := v.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}
