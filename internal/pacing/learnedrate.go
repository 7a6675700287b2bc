package pacing

import "time"

// A learnedRate is the rate at which a server admits requests, as far as its refusals tell. It is for
// servers that refuse because of a limit and say nothing more about it. The zero value holds back no
// request.
//
// An epoch lasts from the first request that is admitted after a pause to the first one that is
// admitted after the next pause. A token bucket is empty at both ends of it, and a window is used up.
// So if requests were waiting all the time, the server's rate is the number of admitted requests
// divided by the time.
//
// After an epoch, requests go evenly and at a rate slightly below, which suits token buckets and
// windows alike. The rate then grows slowly past the measured one until the server refuses a request:
// only that tells whether the limit is higher. It grows by requests and not by time, so that the share
// of refused requests is the same for all rates; and the longer the epochs are, the slower it grows.
type learnedRate struct {
	gap   time.Duration // between two requests; 0: no rate is known
	next  time.Time     // when the next request is due
	burst int64         // so many requests may go before they are due, after a rest

	measured time.Duration // the gap that the last epoch told
	scale    int64         // so many requests until the rate is the measured one again
	waited   int64         // requests since then that went when they were due
	jumped   bool          // measured is a guess: see measure

	open     bool      // an epoch has begun
	refused  bool      // a pause has come in it
	rested   bool      // requests went before they were due
	delayed  bool      // a request waited for another reason
	since    time.Time // the epoch's begin, later by the time without requests
	admitted int64     // in the epoch

	short  int           // pauses since the last epoch that was long
	before time.Duration // the gap before them
	passed int64         // requests admitted since then

	refusals int64 // since then, too

	// While no rate is learned: how many requests were admitted for each refusal with one, and how many
	// were since.
	with, without int64

	longest time.Duration // the gap is never longer
	off     time.Time     // nothing is learned before
	until   time.Time     // everything is forgotten after
}

const (
	// rateMemory is for how long a rate is remembered after it held back a request.
	rateMemory = 10 * time.Minute
	// leastCredit is how far ahead of its time a request may always go: timers are late.
	leastCredit = 10 * time.Millisecond
	// longestGap bounds what is learned, so that no product overflows.
	longestGap = time.Hour

	// leastMeasured is how many admitted requests tell a rate.
	leastMeasured = 20
	// mostScale bounds how slowly the rate grows: a refusal every 1 to 3 times as many requests.
	mostScale = 1500
	// mostScaleTime bounds the time for that: of slow limits, more requests are refused.
	mostScaleTime = 5 * time.Minute
	// A rate that grew for jumpScales scales until it was refused was measured too low.
	jumpScales = 6
	// mostJump bounds the guess, as a multiple of the measured rate.
	mostJump = 4

	// Refusals do not depend on the rate if it has fallen to less than a mostFall-th within at least
	// mostShort pauses, and none came after longEpoch admitted requests.
	longEpoch = 1000
	mostShort = 15
	mostFall  = 8
	// They depend on it after all if, without one, leastRefusals come a mostDrop-th as many requests
	// apart: then several clients share the limit, and one took the refusals that the others
	// have caused for independent of its rate.
	leastRefusals = 10
	mostDrop      = 4
)

// credit is how far ahead of its time a request may go.
func (l *learnedRate) credit() time.Duration { return max(time.Duration(l.burst)*l.gap, leastCredit) }

// wait is the time until the n-th request from now may go, counted from 1.
func (l *learnedRate) wait(n int64, now time.Time) time.Duration {
	if l.gap == 0 {
		return 0
	}
	d := l.next.Add(-l.credit()).Sub(now)
	return max(d+time.Duration(min(n-1, int64(24*longestGap/l.gap)))*l.gap, 0)
}

// send counts a request that is sent.
func (l *learnedRate) send(now time.Time) {
	if l.gap == 0 {
		return
	}
	if l.delayed || l.refused {
		l.next, l.delayed = now.Add(l.credit()), false
	}
	late := leastCredit + 2*l.gap
	if idle := now.Sub(l.next); idle > 0 {
		l.next = now
		if idle > late {
			l.since = l.since.Add(idle)
		}
	}
	if l.next.Sub(now) < l.credit()-late {
		l.rested = true
	} else {
		l.waited++
		l.grow()
		l.until = now.Add(rateMemory)
	}
	l.next = l.next.Add(l.gap)
}

// refuse counts a refusal that begins a pause.
func (l *learnedRate) refuse(now time.Time, pause, longest time.Duration) {
	if now.Before(l.off) {
		if l.refusals < leastRefusals || mostDrop*l.without > l.refusals*l.with {
			return
		}
		*l = learnedRate{}
	}
	l.refused, l.longest = true, min(longest, longestGap)
	l.until = now.Add(pause + rateMemory)
}

// admit counts an admitted request. fresh is whether it was sent after the last pause began.
func (l *learnedRate) admit(sent time.Time, fresh bool) {
	if l.refused && fresh {
		l.refused = false
		l.measure(sent)
	}
	if l.open {
		l.admitted++
	}
	l.without++
}

// measure ends an epoch with its last pause, and begins another.
func (l *learnedRate) measure(now time.Time) {
	if !l.open {
		l.open, l.since = true, now
		return
	}
	if l.useless() {
		*l = learnedRate{off: now.Add(rateMemory), until: now.Add(rateMemory), with: l.passed / max(l.refusals, 1)}
		return
	}
	average := now.Sub(l.since) / time.Duration(max(l.admitted, 1))
	scale := max(l.admitted, l.scale/2) // an epoch that was shorter than the last ones tells of a change
	switch {
	case l.admitted < leastMeasured && l.gap == 0:
		return
	case l.admitted < leastMeasured: // the epoch goes on, at a lower rate
		l.restart(min(max(average, l.gap), 2*l.gap), max(l.scale/2, min(l.scale, 100)))
		l.next = now.Add(l.credit())
		return
	case l.gap == 0:
		l.burst = l.admitted / 2
		l.restart(average, scale)
	case l.rested: // the burst was too long, and the average tells of times without requests
		l.burst /= 2
		l.restart(l.gap, scale)
	case l.jumped: // the epoch was short because the guess was high
		l.restart(max(average, l.gap), max(scale, l.scale))
	case l.waited >= jumpScales*l.scale:
		// The average tells of the time in which the rate was too low, and the last rate may have emptied
		// a bucket. The rate of one scale ago is a guess, and the next epoch measures it.
		l.waited -= l.scale
		l.grow()
		l.restart(max(min(l.gap, average), average/mostJump), 2*l.scale)
		l.jumped = true
	default:
		l.restart(max(average, l.gap), scale)
	}
	l.next = now.Add(l.credit())
	l.since, l.admitted, l.rested = now, 0, false
}

// useless reports whether the server refuses much lower rates just as often: it refuses for another
// reason, such as one kind of request.
func (l *learnedRate) useless() bool {
	if l.gap == 0 || l.admitted >= longEpoch {
		l.short, l.before, l.passed, l.refusals = 0, 0, 0, 0
		return false
	}
	l.passed += l.admitted
	if l.before == 0 {
		l.before = l.gap
	}
	l.short++
	return l.short >= mostShort && l.gap/mostFall > l.before
}

// restart lets the rate grow from slightly below a measured one.
func (l *learnedRate) restart(measured time.Duration, scale int64) {
	l.measured = min(max(measured, 1), l.longest)
	l.scale = max(min(scale, mostScale, int64(mostScaleTime/l.measured)), leastMeasured)
	l.waited, l.jumped = 0, false
	l.grow()
}

// grow sets the rate: 98 % of the measured one at first, 100 % after scale requests, 102 % after 2,
// and 2 % twice, 4 times, 8 times as much after each further scale.
func (l *learnedRate) grow() {
	const all, step = 1_000_000, 20_000
	scales := min(l.waited/l.scale, 20)
	part := all + min(l.waited-scales*l.scale, l.scale)*all/l.scale // from 1 to 2
	percent := step * (part - all) / all
	if scales > 0 {
		percent = step * part / all << (scales - 1)
	}
	l.gap = max(l.measured*all/time.Duration(all-step+percent), 1)
}

// pause is the first pause after a refusal for which the server gave no time.
func (l *learnedRate) pause() time.Duration {
	if l.gap == 0 {
		return firstPause
	}
	return max(min(20*l.gap, firstPause), l.gap, leastCredit)
}
