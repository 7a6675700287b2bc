package weirredis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/scripted"
)

// chargesCall writes charges down, for call.lua or a short script.
func (x *exchange) chargesCall() Call {
	keys := make([]string, 1, 1+len(x.requests))
	keys[0] = x.nonce
	var limits []*limit
	var once []string
	for _, r := range x.requests {
		for i := range r.charges {
			c := &r.charges[i]
			limits = add(limits, c.limit)
			if x.protocol.isShort() {
				continue
			}
			keys = append(keys, c.key)
			if c.once != "" {
				once = append(once, c.once)
			}
		}
	}
	if x.protocol.isShort() {
		x.group(limits)
		for i := range x.runs {
			keys = append(keys, x.runs[i].first.key)
		}
		return Call{Script: x.store.scripts.of(limits[0].short.script()), Send: x.source, Keys: keys, Args: []string{x.writeShort(limits)}}
	}
	args := []string{x.write(limits, len(keys)-1)}
	return Call{Script: x.store.scripts.of(x.kinds), Send: x.source, Keys: append(keys, once...), Args: args}
}

// write writes the argument of call.lua.
func (x *exchange) write(limits []*limit, charges int) string {
	b := make([]byte, 0, 256)
	calendars := x.calendars()
	elements := 6
	if calendars != "" {
		elements++
	}
	b = appendInt(appendArray(b, elements), version)
	b = appendInt(b, x.expiry)
	b = appendInt(b, int64(x.store.opts.Grace/time.Millisecond))
	b = appendInt(b, 1)
	b = appendArray(b, len(limits))
	for _, l := range limits {
		b = appendString(b, l.def)
	}
	b = appendArray(b, 8*charges)
	groups := int64(0)
	for _, r := range x.requests {
		early := x.early(r)
		from, last := groups, 0
		for i := range r.charges {
			c := &r.charges[i]
			b = appendInt(b, int64(c.op))
			b = appendInt(b, int64(index(limits, c.limit))+1)
			b = appendInt(b, c.cost)
			if c.group > 0 && (c.group != last || groups == from) {
				groups++ // the groups of each request are its own
			}
			if last = c.group; c.group > 0 {
				b = appendInt(b, groups)
			} else {
				b = appendInt(b, 0)
			}
			b = appendInt(b, c.more)
			b = appendString(b, string(c.paper))
			b = appendInt(b, early)
			b = appendInt(b, c.ttl)
		}
	}
	return string(append(b, calendars...))
}

// early is how much sooner than the call a request expires, in milliseconds: its caller may leave
// before the others.
func (x *exchange) early(r *request) int64 {
	return int64((x.end.Sub(r.end) + time.Millisecond - 1) / time.Millisecond)
}

// add adds a limit that is not there yet. There are few.
func add(all []*limit, l *limit) []*limit {
	if index(all, l) < 0 {
		all = append(all, l)
	}
	return all
}

func index(all []*limit, l *limit) int {
	for i := range all {
		if all[i] == l {
			return i
		}
	}
	return -1
}

// adapt changes the next attempt by what a script said, which carried out nothing. It reports false
// for any other error.
func (x *exchange) adapt(text string) bool {
	switch {
	case strings.HasPrefix(text, "WEIRFULL") && x.protocol.isShort():
		x.protocol = protocolCharges
	case strings.HasPrefix(text, "WEIRFULL") && x.kinds != full:
		x.kinds = full
		x.meet(text)
	case strings.HasPrefix(text, "WEIRLATE "):
		x.late(text)
	case strings.HasPrefix(text, "WEIRCALENDAR "):
		x.lacking(text)
	default:
		return false
	}
	return true
}

// meet notes of which limit a key holds a state of another version.
func (x *exchange) meet(text string) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return
	}
	which, err := strconv.Atoi(words[1])
	var limits []*limit
	for _, r := range x.requests {
		for i := range r.charges {
			limits = add(limits, r.charges[i].limit)
		}
	}
	if err == nil && which > 0 && which <= len(limits) {
		limits[which-1].meet()
	}
}

// late is for a call that came after its expiry and was not carried out, as what was known of the
// server's clock was wrong, or nothing. Where an earlier attempt may have been carried out this is
// the end: its answer may be gone by now.
func (x *exchange) late(text string) {
	now, err := strconv.ParseInt(strings.TrimPrefix(text, "WEIRLATE "), 10, 64)
	if err != nil {
		x.finish(fmt.Errorf("weirredis: %s", text))
		return
	}
	x.part.clock.set(now)
	if x.unsure {
		x.finish(errors.New("weirredis: no reply in time: the charge may have been carried out or not"))
		return
	}
	x.nonce = ""
}

// readCharges gives each charge its result. A request that was late by the server's clock and is
// not by ours goes again: it was not carried out, and now that clock is known.
func (x *exchange) readCharges(text string) {
	in := &reader{b: text}
	elements := in.array()
	now := in.int()
	if x.protocol.isShort() {
		x.readShort(in)
	} else {
		for _, r := range x.requests {
			for i := range r.charges {
				r.charges[i].read(in)
			}
		}
	}
	var steps, behind, inexact int64
	if in.b != "" {
		steps, behind, inexact = in.int(), in.int(), in.int()
	}
	if in.err != nil || elements == 0 {
		x.finish(errAnswer)
		return
	}
	x.part.clock.see(now, x.sent)
	x.store.inexact.Add(uint64(inexact))
	if steps > 0 {
		x.store.steps.Stepped(steps, scripted.Span(behind))
	}
	var again []*request
	for _, r := range x.requests {
		switch {
		case r.charges[0].err != errLate:
			r.finish(nil)
		case r.end.After(time.Now()):
			again = append(again, r)
		default:
			r.finish(errLate)
		}
	}
	if x.over = again == nil; !x.over {
		x.requests, x.end, x.nonce, x.unsure = again, latestEnd(again), "", false
	}
}
