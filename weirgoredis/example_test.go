package weirgoredis_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirgoredis"
	"github.com/weirflow/weir/weirredis"
)

// The code of docs/go.md is that of this example: see TestGoPageShowsTheExamples in weirhttp. It needs
// a Redis, and is only compiled.

func Example_redisRate() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	fmt.Println(allow(context.Background(), rdb))
}

// Of redis_rate.
func allow(ctx context.Context, rdb *redis.Client) error {
	store, err := weirgoredis.New(rdb, weirredis.Options{})
	if err != nil {
		return err
	}
	perUser, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10}, store, weir.Named("per-user"))
	if err != nil {
		return err
	}
	d, err := perUser.Take(ctx, "123", 1)
	switch {
	case err != nil:
		return err
	case !d.Allowed:
		return &weir.LimitedError{Decision: d}
	}
	return nil
}
