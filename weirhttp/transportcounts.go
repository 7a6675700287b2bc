package weirhttp

import "sync/atomic"

// Counts are what a Transport has done so far.
type Counts struct {
	Requests  uint64 // that were given to it
	Sent      uint64 // attempts to send one, retries and second attempts included
	Retried   uint64 // retries
	NoBudget  uint64 // retries that were not made because RetryBudget had none left
	Throttled uint64 // requests and retries that Throttle has refused
	NoPlace   uint64 // requests and retries that Adapt has refused
	Hedged    uint64 // second attempts
	HedgesWon uint64 // second attempts whose response the caller got
}

type counts struct{ requests, sent, retried, noBudget, throttled, noPlace, hedged, hedgesWon atomic.Uint64 }

// Counts returns what the Transport has done so far, for metrics.
func (t *Transport) Counts() Counts {
	n := &t.counts
	return Counts{
		Requests: n.requests.Load(), Sent: n.sent.Load(), Retried: n.retried.Load(),
		NoBudget: n.noBudget.Load(), Throttled: n.throttled.Load(), NoPlace: n.noPlace.Load(), Hedged: n.hedged.Load(), HedgesWon: n.hedgesWon.Load(),
	}
}
