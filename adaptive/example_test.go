package adaptive_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
)

func ExampleLimiter_Do() {
	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.Knee{Initial: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	err = l.Do(ctx, func(ctx context.Context) error {
		fmt.Println("the first is in flight")
		err := l.Do(ctx, func(context.Context) error { return nil })
		fmt.Println("the second is limited:", errors.Is(err, weir.ErrLimited))
		return nil
	})
	fmt.Println(err, l.Outcomes())
	// Output:
	// the first is in flight
	// the second is limited: true
	// <nil> {1 0 0 1}
}
