// Package weir is a rate limiter: it decides whether a piece of work may go ahead now, must wait,
// or is refused. It is exact: over any interval it admits no more than the limit allows, and it
// refuses nothing that the limit allows.
//
//	l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200})
//	...
//	if !l.Allow() {
//		http.Error(w, "slow down", http.StatusTooManyRequests)
//		return
//	}
//
// # Which method to call
//
// Most servers should use [Limiter.Allow], or [Limiter.Take] for costs other than 1: they decide
// now, and the caller drops or degrades work that is refused. Most clients and workers should use
// [Limiter.Wait]: it blocks the caller until its turn, in the order of arrival.
//
//   - [Limiter.Join] queues like Wait, without blocking a goroutine.
//   - [Limiter.Reserve] charges ahead and returns how long to delay the work. It is for work whose
//     cost is only known afterwards, or that may still be cancelled.
//   - [Limiter.Peek] returns the decision without charging.
//   - [Limiter.SetLimit] changes the limit while the limiter is in use.
//
// # Choosing a limit
//
// [TokenBucket] fits almost everything: a rate, and a burst that may come at once. [LeakyBucket]
// spreads work evenly: work waits in a bounded queue rather than being refused. For one limit per
// key, such as an address or a user, see package keyed.
//
// The other limits match an existing contract, or meet a special need:
//
//   - [FixedWindow]: a quota per hour, or per month in a time zone.
//   - [IntervalBucket]: a token bucket that refills in whole steps.
//   - [SlidingLog]: never more than Limit in any window, exactly.
//   - [SlidingCounter]: an approximation of that, in three words of state.
//   - [SlidingWindow]: a limit over a window and another over each of its slots.
//   - [SmoothBursty] and [WarmUp]: Guava's RateLimiter.
//   - [NginxBucket]: nginx's limit_req.
//
// docs/algorithms.md has a picture of each, and its pitfalls.
//
// [All] joins several limits of one resource. [NewGroup] joins limiters of several resources, such
// as requests and their bytes. [Concurrency] limits how much work is in flight at once, and not how
// often it starts: see [NewConcurrency].
//
// # Around work and streams
//
// [Limiter.Do] waits and then calls a function. [Limiter.Pace] is a loop at a rate. [NewReader],
// [NewWriter] and [NewConn] limit a rate of bytes.
//
// # Guarantees
//
//   - Rates are exact fractions: 1/d and 999999937/s are kept without truncation, and rounding
//     errors do not add up.
//   - Work that is refused is not charged.
//   - RetryAfter is sufficient, and tight to a nanosecond.
//   - A clock that steps back never adds tokens.
//   - Any int64 is a safe cost.
//
// docs/guarantees.md states the bound of each limit, and of everything that loosens it.
//
// # Not guaranteed
//
// A Limiter counts in one process. Wait is first come, first served. Allow and Take have no order:
// they are as fair as the order in which callers reach them. The state is lost when the process
// ends.
package weir
