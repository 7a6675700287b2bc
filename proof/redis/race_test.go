//go:build race

package redis

import "time"

// pause is how long callers wait between two calls, on average, in TestFaults: with the race detector a small machine does less.
const pause = 150 * time.Millisecond
