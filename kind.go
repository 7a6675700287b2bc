package weir

import (
	"reflect"

	"github.com/weirflow/weir/internal/snake"
)

// Kinds returns a limit of each kind, without parameters, in the order of the documentation: for what lists or reads limits of any kind.
func Kinds() []Limit {
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

// Kind returns the name of a limit's kind, as policy files and scripts write it: "token_bucket" for a TokenBucket, "all" for what All returns, and
// nothing for nil.
func Kind(l Limit) string {
	switch l.(type) {
	case nil:
		return ""
	case allOf:
		return "all"
	}
	return snake.Case(reflect.TypeOf(l).Name())
}
