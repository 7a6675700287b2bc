package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

func TestQuick(t *testing.T) {
	c := connect(t, rueidis.ClientOption{InitAddress: []string{"127.0.0.1:7777"}})
	script := rueidis.NewLuaScript("local v = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], ARGV[1]); return v or ''")
	for _, callers := range []int{1, 64} {
		for _, flights := range []int{1, 2, 4, 8} {
			st, _ := weirrueidis.New(c, weirredis.Options{Flights: flights})
			sh, _ := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(1e6), Burst: 1e6}, st, weir.Named("x"))
			c.Do(context.Background(), c.B().Arbitrary("CONFIG", "RESETSTAT").Build())
			n := run(callers, func(int) { sh.Take(context.Background(), "hot", 1) })
			m := run(callers, func(i int) { sh.Take(context.Background(), fmt.Sprint(i), 1) })
			info, _ := c.Do(context.Background(), c.B().Info().Section("commandstats").Build()).ToString()
			fmt.Println(callers, "callers", flights, "flights: hot", n, "keys", m)
			if flights == 4 { fmt.Println(info) }
			st.Close()
		}
		n := run(callers, func(int) { script.Exec(context.Background(), c, []string{"trivial"}, []string{"12345678"}).ToString() })
		fmt.Println(callers, "trivial", n)
	}
}

func run(callers int, f func(int)) string {
	var wg sync.WaitGroup
	var n atomic.Int64
	end := time.Now().Add(time.Second)
	for g := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; time.Now().Before(end); i++ {
				f(g*1000 + i%1000)
				n.Add(1)
			}
		}()
	}
	wg.Wait()
	return fmt.Sprint(n.Load(), "/s")
}
