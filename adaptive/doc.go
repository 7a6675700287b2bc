// Package adaptive limits how many requests are in flight, with a limit that finds itself from the
// latency and the outcome of the requests.
//
//	l, err := adaptive.New(adaptive.Options{})
//	...
//	err = l.Do(ctx, func(ctx context.Context) error { return call(ctx) })
//
// A fixed limit is right for one capacity. This one follows the capacity: it rises while more
// requests in flight cost no latency, and falls when they only wait for each other, or are dropped.
//
// Most callers should keep the default algorithm, Knee. AIMD, Vegas and Gradient2 have the formulas
// and defaults of Netflix's concurrency-limits, for those who know them from there.
//
// BBR is for another purpose: it protects the machine, and limits nothing until a signal, such as the
// CPU time in use, says that there is an overload.
//
// docs/adaptive.md explains Knee, and shows it, AIMD, Vegas and Gradient2 in simulations. For a fixed limit, see
// weir.Concurrency.
package adaptive
