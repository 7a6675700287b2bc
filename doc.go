// Package weir decides whether a piece of work may go ahead now, must wait, or is refused. It is exact: over any interval no more is
// admitted than the limit says, and nothing is refused that the limit allows.
//
//	l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200})
//	...
//	if !l.Allow() {
//		http.Error(w, "slow down", http.StatusTooManyRequests)
//		return
//	}
//
// # Which verb to call
//
// [Limiter.Allow] and [Limiter.Take] decide now: what is refused is dropped, or answered with less. [Limiter.Wait] holds the caller
// until its turn, in the order of arrival; [Limiter.Join] does so without blocking a goroutine. [Limiter.Reserve] charges ahead and
// says how long to hold back, for work whose cost is only known afterwards, or that may yet be called off. [Limiter.Peek] looks.
// [Limiter.SetLimit] changes the numbers while all of this goes on.
//
// # Choosing a limit
//
// [TokenBucket] for almost everything: a rate, and a burst that may come at once. [LeakyBucket] where work is to be spread evenly, and
// to wait in a bounded queue rather than be refused. Limits for one key each, such as an address or a user, are in package keyed.
//
// The others are for what somebody else has laid down, or for a special need. [FixedWindow]: a quota for each hour, or for each month in
// a time zone. [IntervalBucket]: tokens that come in whole steps. [SlidingLog]: never more than so many in any window, exactly.
// [SlidingCounter]: nearly that, in three numbers. [SlidingWindow]: a limit over a window and another over each of its slots.
// [SmoothBursty] and [WarmUp]: Guava's RateLimiter. [NginxBucket]: nginx's limit_req. docs/algorithms.md has the trap and the picture of each.
//
// [All] joins several limits of one thing; [NewGroup] joins limiters of several, such as requests and their bytes. [Concurrency] limits how
// much goes on at once, however often; it is entered and left: see [NewConcurrency].
//
// # Around work and streams
//
// [Limiter.Do] waits and calls a function, [Limiter.Pace] is a loop at a rate. [NewReader], [NewWriter] and [NewConn] keep a rate of bytes.
//
// # What is guaranteed
//
// Rates are fractions and stay so: 1/d and 999999937/s are kept without truncation, and roundings do not add up. Work that is refused
// is not charged. RetryAfter is sufficient, and tight to a nanosecond. The clock may step back without minting anything. Any int64 is
// a safe cost. docs/guarantees.md states the bound of each limit, and of each thing that loosens it.
//
// # What is not
//
// A Limiter counts in one process. It is as fair as the order in which callers reach it: Wait is first come, first served, but Allow
// and Take have no order. Its state is gone with the process.
package weir
