package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// At most two at once, without a queue.
func ExampleNewConcurrency() {
	l, err := weir.NewConcurrency(weir.Concurrency{Limit: 2}, weir.Named("database"))
	if err != nil {
		fmt.Println(err)
		return
	}
	first, _ := l.TryEnter()
	l.TryEnter()
	_, d := l.TryEnter()
	fmt.Println(d.Allowed, d.By)

	first.Done(weir.OK)
	_, d = l.TryEnter()
	fmt.Println(d.Allowed, d.Remaining)
	// Output:
	// false database
	// true 0
}

// Ten at once, with a queue of a hundred. A hold ends after a minute.
func ExampleConcurrencyLimiter_Do() {
	l, err := weir.NewConcurrency(weir.Concurrency{Limit: 10, Queue: 100, MaxHold: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = l.Do(context.Background(), func(context.Context) error {
		fmt.Println("at work:", l.Holding())
		return nil
	})
	fmt.Println(err, l.Holding(), l.Outcomes().OK)
	// Output:
	// at work: 1
	// <nil> 0 1
}

// Limiting memory instead of requests: the cost of a request is the length of its body.
func ExampleConcurrencyLimiter_EnterCost() {
	l, _ := weir.NewConcurrency(weir.Concurrency{Limit: 64 << 20, Queue: 1000})
	h, err := l.EnterCost(context.Background(), 10<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Done(weir.OK)
	fmt.Println(l.Holding()>>20, "of", l.Limit().Limit>>20, "MB")
	// Output: 10 of 64 MB
}

// A process that was stopped for too long has lost its place to another. A resource that both write
// to tells them apart by their fences.
func ExampleHold_Fence() {
	var clock weirtest.Clock
	l, _ := weir.NewConcurrency(weir.Concurrency{Limit: 1, MaxHold: time.Second}, weir.WithClock(clock.Now))
	slow, _ := l.TryEnter()
	clock.Set(int64(2 * time.Second))
	next, _ := l.TryEnter()

	fmt.Println("still mine:", slow.Extend())
	fmt.Println("the next one's is larger:", next.Fence() > slow.Fence())
	// Output:
	// still mine: false
	// the next one's is larger: true
}
