package weirredis

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/rediserror"
)

// A protocol is how the requests of an exchange are written down for a script, and how its answers
// are read.
type protocol uint8

const (
	protocolShort   protocol = iota // take.lua: takes and peeks of buckets
	protocolFixed                   // fixedtake.lua: those of fixed windows
	protocolCharges                 // main.lua: any charge
	protocolPlaces                  // concurrency.lua: to enter, extend and leave
)

// An exchange is requests that are one call of a script, from the first attempt to the last.
//
// A call about charges has a nonce and an expiry by the server's clock: it is repeated as it is,
// and carried out once. Questions about places bear an id each and are harmless when repeated, so
// that those whose caller has left are dropped from the next attempt.
type exchange struct {
	store    *Store
	part     *part // of the slots that it is about
	protocol protocol
	requests []*request
	end      time.Time // of the last caller
	sent     time.Time // the first attempt with this nonce, or the latest one about places
	source   bool      // the server lacks the script
	tries    int
	over     bool
	failure  error    // of the latest attempt
	refusal  *refusal // of the latest attempt that the server refused

	// Of charges:
	kinds  kindSet
	nonce  string
	expiry int64   // end by the server's clock, or unknown
	unsure bool    // an attempt with this nonce may have been carried out
	times  []int64 // at which windows of calendars are needed, besides those of now

	runs    []run       // what a short script was asked
	strange []*calendar // by which other versions of the limits go
}

// exchanges divides requests into calls: by their slots and their protocols.
func (s *Store) exchanges(requests []*request) (all []*exchange) {
	type call struct {
		slot     uint16
		protocol protocol
	}
	first := call{requests[0].slot, requests[0].protocol}
	alike := true
	for _, r := range requests {
		alike = alike && call{r.slot, r.protocol} == first
	}
	if alike {
		return append(all, newExchange(s, requests))
	}
	at := map[call]int{}
	var groups [][]*request
	for _, r := range requests {
		c := call{r.slot, r.protocol}
		i, ok := at[c]
		if !ok {
			i = len(groups)
			at[c], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	for _, g := range groups {
		all = append(all, newExchange(s, g))
	}
	return all
}

func newExchange(s *Store, requests []*request) *exchange {
	x := &exchange{
		store: s, part: s.queues.part(requests[0].slot), protocol: requests[0].protocol, requests: requests, end: latestEnd(requests),
	}
	for _, r := range requests {
		for i := range r.charges {
			l := r.charges[i].limit
			if x.kinds |= l.kinds; l.met() != nil {
				x.protocol, x.kinds = protocolCharges, full
			}
		}
	}
	return x
}

// latestEnd is when the last of the callers leaves.
func latestEnd(requests []*request) time.Time {
	end := requests[0].end
	for _, r := range requests {
		if r.end.After(end) {
			end = r.end
		}
	}
	return end
}

// again reports whether to make another attempt. If not, the callers get an error.
func (x *exchange) again(ctx context.Context) bool {
	if x.over {
		return false
	}
	if x.protocol == protocolPlaces {
		x.dropLate()
	}
	if len(x.requests) > 0 && ctx.Err() == nil && time.Now().Before(x.end) {
		x.tries++
		return true
	}
	x.finish(x.unanswered())
	return false
}

// unanswered is the error for requests without a reply.
func (x *exchange) unanswered() error {
	switch {
	case x.store.ctx.Err() != nil:
		return errClosed
	case x.refusal != nil && (x.failure == nil || errors.Is(x.failure, context.DeadlineExceeded)): // no time was left for a reply to the latest attempt
		return fmt.Errorf("weirredis: no reply: %w", x.refusal.err)
	case x.failure != nil:
		return fmt.Errorf("weirredis: no reply: %w", x.failure)
	}
	return fmt.Errorf("weirredis: no reply: %w", context.DeadlineExceeded)
}

// dropLate ends requests whose callers have left.
func (x *exchange) dropLate() {
	now, kept := time.Now(), x.requests[:0]
	for _, r := range x.requests {
		if now.Before(r.end) {
			kept = append(kept, r)
		} else {
			r.finish(x.unanswered())
		}
	}
	x.requests = kept
}

// finish gives up.
func (x *exchange) finish(err error) {
	x.over = true
	for _, r := range x.requests {
		r.finish(err)
	}
}

// call writes the requests down.
func (x *exchange) call() Call {
	if x.protocol == protocolPlaces {
		x.sent = time.Now()
		return x.placesCall()
	}
	if x.nonce == "" {
		x.newNonce()
	}
	return x.chargesCall()
}

// newNonce begins attempts of which at most one is carried out: a repeat has the nonce of the
// first.
func (x *exchange) newNonce() {
	s := x.store
	var id [16]byte
	copy(id[:], s.self[:])
	binary.BigEndian.PutUint64(id[8:], s.nonces.Add(1))
	key := x.requests[0].charges[0].key
	x.nonce = key[:strings.IndexByte(key, '}')+1] + ":nonce:" + hex.EncodeToString(id[:])
	x.expiry, x.sent = x.part.clock.expiry(x.end), time.Now()
}

// receive reads the reply to an attempt.
func (x *exchange) receive(r Reply) {
	x.failure, x.source = nil, false
	defer func() {
		if x.part.heard(x.failure == nil); x.failure != nil {
			x.store.askAgain(askAtMost)
		}
	}()
	if r.Err == nil {
		if x.protocol == protocolPlaces {
			x.readPlaces(r.Text)
		} else {
			x.readCharges(r.Text)
		}
		return
	}
	switch text := r.Err.Error(); {
	case strings.HasPrefix(text, "NOSCRIPT"):
		x.source = true
	case x.protocol != protocolPlaces && x.adapt(text):
	case rediserror.Refused(text):
		x.failure, x.refusal = r.Err, &refusal{r.Err}
		for _, r := range x.requests {
			r.refusal.Store(x.refusal)
		}
	case rediserror.Lost(r.Err):
		x.failure = r.Err
		x.unsure = x.unsure || x.expiry != unknown
		for _, r := range x.requests {
			r.repeated = true
		}
	case x.protocol.isShort() && strings.Contains(text, "script"): // a key holds what the short script cannot read: main.lua says which
		x.protocol = protocolCharges
	default:
		x.finish(fmt.Errorf("weirredis: %w", r.Err))
	}
}
