//go:build race

package redis

import "time"

// pause is the average time between two calls of a caller in TestFaults: with the race detector a
// small machine does less.
const pause = 150 * time.Millisecond
