package room

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/redis"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
	"github.com/weirflow/weir/weirsql"
)

// Benchmarks measure a poll of a waiting visitor, with so many in the queue.
var crowds = []int{10, 50_000, 100_000}

// BenchmarkRedis is over Redis.
func BenchmarkRedis(b *testing.B) {
	for _, waiting := range crowds {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			ctx := context.Background()
			s := servers.StartRedis(b, servers.RedisOptions{})
			store, err := weirrueidis.Open(s.URL(), weirredis.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			line, err := redis.NewQueue(store.Evaler(), plainSpec(), redis.QueueOptions{Name: "sale", Deadline: servers.Patience})
			if err != nil {
				b.Fatal(err)
			}
			benchmark(b, line, waiting)
			if info, err := s.Info(ctx, "memory"); err == nil {
				b.ReportMetric(parse(info["used_memory"])/float64(waiting), "B/visitor")
			}
		})
	}
}

// BenchmarkPostgres is over PostgreSQL, with the connections that a gateway has for a room.
func BenchmarkPostgres(b *testing.B) {
	for _, waiting := range crowds {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s := servers.StartPostgres(b, servers.PostgresOptions{Persist: true})
			pool := connectTo(b, s.URL()+"&pool_max_conns=2")
			if err := (weirsql.Schema{}).Migrate(b.Context(), weirpgx.Querier(pool)); err != nil {
				b.Fatal(err)
			}
			benchmark(b, openPostgres(b, weirpgx.Querier(pool), "sale", plainSpec()), waiting)
			var bytes int64
			if err := pool.QueryRow(context.Background(), "SELECT pg_total_relation_size('weir.visitors') + pg_total_relation_size('weir.parts') + pg_total_relation_size('weir.rooms')").Scan(&bytes); err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64(bytes)/float64(waiting), "B/visitor")
		})
	}
}

// BenchmarkMemory is in memory.
func BenchmarkMemory(b *testing.B) {
	for _, waiting := range crowds {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			line, err := room.NewMemory(plainSpec(), nil)
			if err != nil {
				b.Fatal(err)
			}
			benchmark(b, line, waiting)
		})
	}
}

// benchmark fills a queue, and measures polls of its visitors by 32 callers.
func benchmark(b *testing.B, line room.Queue, waiting int) {
	ctx := context.Background()
	each(waiting, func(i int) {
		if _, err := line.Poll(ctx, room.Poll{ID: fmt.Sprintf("%022d", i), Join: true}); err != nil {
			b.Error(err)
		}
	})
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i += 7919 {
			if _, err := line.Poll(ctx, room.Poll{ID: fmt.Sprintf("%022d", i%waiting)}); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "polls/s")
}

func parse(text string) (n float64) {
	fmt.Sscan(text, &n)
	return n
}
