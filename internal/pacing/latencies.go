package pacing

import (
	"math/bits"
	"sync"
	"time"
)

// Latencies tell within which time a share of the latest requests had a response, such as 95 % of
// them. They are counted in buckets, 8 for each doubling, so a time is up to an eighth too long. It
// is safe for concurrent use, and takes 2 kB.
type Latencies struct {
	share float64

	mu          sync.Mutex
	now, before period
	at          time.Duration // the time, as of some requests ago; 0: too few are counted
}

// A period is some requests.
type period struct {
	buckets [bucketCount]uint32
	n       int64
}

const (
	// periodLength is how many requests a period has. The time is that of the last two.
	periodLength = 500
	// leastLatencies is how many requests tell a time.
	leastLatencies = 100
	// eachLatencies is after how many requests the time is computed again.
	eachLatencies = 20

	firstBucket = 10 // 2^10 ns, which is a microsecond; below is one bucket
	bucketCount = (42-firstBucket)*8 + 1
)

// NewLatencies returns an estimate of the time of a share of the requests, above 0 and below 1.
func NewLatencies(share float64) *Latencies { return &Latencies{share: share} }

// bucket returns the bucket of a time.
func bucket(d time.Duration) int {
	n := bits.Len64(uint64(max(d, 0)))
	if n <= firstBucket {
		return 0
	}
	eighth := int(uint64(d)>>(n-4)) - 8 // the three bits after the highest
	return min((n-firstBucket-1)*8+eighth+1, bucketCount-1)
}

// end returns the longest time of a bucket.
func end(bucket int) time.Duration {
	if bucket == 0 {
		return 1 << firstBucket
	}
	n, eighth := (bucket-1)/8+firstBucket+1, (bucket-1)%8
	return time.Duration(eighth+9) << (n - 4)
}

// Add counts the latency of a request. Of one that was cut short, it is the time until then.
func (l *Latencies) Add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.buckets[bucket(d)]++
	l.now.n++
	if l.now.n%eachLatencies == 0 {
		l.compute()
	}
	if l.now.n == periodLength {
		l.before, l.now = l.now, period{}
	}
}

func (l *Latencies) compute() {
	all := l.now.n + l.before.n
	if all < leastLatencies {
		return
	}
	above := int64((1 - l.share) * float64(all)) // so many took longer
	for i := bucketCount - 1; i >= 0; i-- {
		if above -= int64(l.now.buckets[i] + l.before.buckets[i]); above < 0 {
			l.at = end(i)
			return
		}
	}
}

// At returns the time within which the share of the requests had a response. It returns false if too
// few are counted.
func (l *Latencies) At() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.at > 0
}
