//go:build !race

package redis

import "time"

// pause is how long callers wait between two calls, on average, in TestFaults.
const pause = 40 * time.Millisecond
