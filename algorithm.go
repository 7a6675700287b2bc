package weir

import (
	"reflect"

	"github.com/weirflow/weir/internal/snake"
)

// Algorithms returns a limit of each algorithm, without parameters, in the order of the
// documentation. It is for code that lists or parses limits of any algorithm.
func Algorithms() []Limit {
	return []Limit{
		TokenBucket{},
		LeakyBucket{},
		IntervalBucket{},
		FixedWindow{},
		SlidingWindow{},
		SlidingCounter{},
		SlidingLog{},
		SmoothBursty{},
		WarmUp{},
		NginxBucket{},
		Concurrency{},
	}
}

// Algorithm returns the name of a limit's algorithm, as policy files and scripts write it:
// "token_bucket" for a TokenBucket, "all" for an All, and "" for nil.
func Algorithm(l Limit) string {
	switch l.(type) {
	case nil:
		return ""
	case allOf:
		return "all"
	}
	return snake.Case(reflect.TypeOf(l).Name())
}
