package sim

import (
	"cmp"
	"errors"
	"slices"
)

// errDisorder says that a request came so much later than others of a later time that these were
// decided already.
var errDisorder = errors.New("the requests are not in order")

// An order merges the inputs of a feed by time, and puts right what is a little out of order, in
// bounded memory. Requests with equal times stay in the order of the inputs and lines.
type order struct {
	feed   *feed
	unread *Reading
	window int // how many requests a late one may be behind
	bytes  int // of the lines of these, together
	use    func(*item) error

	pending []*batch // in the order in which they came
	large   *batch   // of sort, and used no more; it is too large for the feed's spare ones
	count   int      // of their items
	held    int      // bytes, by them
	sorted  bool     // the pending items are in order
	last    position // of the last pending item
	used    position // of the last item that was used
	touched int64    // by prefetch, so that it is not optimised away
}

// position is what requests are ordered by.
type position struct {
	at    int64
	input int32
	place int64 // see item
}

func (it *item) position() position { return position{it.at, it.input, it.place} }

func (p position) compare(q position) int {
	if p.at != q.at { // nearly always
		return cmp.Compare(p.at, q.at)
	}
	return cmp.Or(cmp.Compare(p.input, q.input), cmp.Compare(p.place, q.place))
}

// run calls use for each request, in order. It returns errDisorder if one came too late for that.
func (o *order) run() error {
	o.sorted = true
	o.used = position{at: -1 << 63}
	o.last = o.used
	next := o.merge
	if len(o.feed.inputs) == 1 {
		next = func() (*batch, error) { return o.feed.take(o.feed.inputs[0], o.unread) }
	}
	for {
		b, err := next()
		if err != nil {
			return err
		}
		if b == nil {
			return o.emit(0)
		}
		o.add(b)
		switch {
		case o.sorted && o.over(1), o.over(2):
			keep := o.window
			if o.held > o.bytes {
				keep = min(keep, int(float64(o.count)*float64(o.bytes)/float64(o.held)))
			}
			if err := o.emit(keep); err != nil {
				return err
			}
		}
	}
}

// over reports whether more is pending than a number of windows.
func (o *order) over(windows int) bool {
	return o.count > windows*o.window || o.held > windows*o.bytes
}

// add adds a batch to those that are pending.
func (o *order) add(b *batch) {
	if len(b.items) > 0 {
		o.sorted = o.sorted && !b.late && b.items[0].position().compare(o.last) > 0
		if b.latest.compare(o.last) > 0 {
			o.last = b.latest
		}
	}
	o.count += len(b.items)
	o.held += b.held
	o.pending = append(o.pending, b)
}

// emit uses the first of the pending requests, until about as many as keep are left.
func (o *order) emit(keep int) error {
	if !o.sorted {
		o.sort()
	}
	n := 0
	for _, b := range o.pending {
		use := b.items[b.from:]
		use = use[:min(len(use), max(o.count-keep, 0))]
		if len(use) > 0 && use[0].position().compare(o.used) < 0 {
			return errDisorder
		}
		for i := range use {
			if i%prefetchCount == 0 {
				o.prefetch(use[i:min(i+prefetchCount, len(use))])
			}
			if err := o.use(&use[i]); err != nil {
				return err
			}
		}
		if len(use) > 0 {
			o.used = use[len(use)-1].position()
		}
		o.count -= len(use)
		part := b.held
		if left := len(b.items) - b.from; len(use) < left {
			part = int(float64(part) * float64(len(use)) / float64(left))
		}
		b.held -= part
		o.held -= part
		if b.from += len(use); b.from < len(b.items) {
			if o.feed.spent == nil {
				clear(use) // the blocks of their strings would be kept
			}
			break
		}
		n++
		o.release(b)
	}
	o.pending = slices.Delete(o.pending, 0, n)
	return nil
}

// prefetch loads some items and their texts, which were parsed a window ago: the CPU loads several in little more
// time than one.
func (o *order) prefetch(items []item) {
	for i := range items {
		it := &items[i]
		o.touched ^= int64(it.status) ^ it.length
		if it.client != "" && it.target != "" {
			o.touched ^= int64(it.client[0]) ^ int64(it.target[len(it.target)-1])
		}
	}
}

// sort makes one sorted batch of all that are pending.
func (o *order) sort() {
	type place struct {
		position
		it *item
	}
	places := make([]place, 0, o.count)
	for _, b := range o.pending {
		for i := b.from; i < len(b.items); i++ {
			places = append(places, place{b.items[i].position(), &b.items[i]})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return a.compare(b.position) })
	all := &batch{}
	if o.large != nil {
		all, o.large = o.large, nil
	}
	all.sorted, all.held = true, o.held
	for _, p := range places {
		all.items = append(all.items, *p.it)
	}
	for _, b := range o.pending {
		b.buf = nil // its texts are those of the copies
		o.release(b)
	}
	o.pending, o.sorted = append(o.pending[:0], all), true
}

// release gives back a batch whose items are used no more.
func (o *order) release(b *batch) {
	if !b.sorted {
		o.feed.release(b)
		return
	}
	clear(b.items)
	b.items, b.from, o.large = b.items[:0], 0, b
}

// merged is how many requests merge returns at once, and mergedBytes how many bytes of them, about.
const (
	merged      = 512
	mergedBytes = 1 << 20
)

// merge returns the next requests of all inputs: it takes from the one whose next request is the first.
func (o *order) merge() (*batch, error) {
	b := o.feed.spare.Get().(*batch)
	for len(b.items) < merged && b.held < mergedBytes {
		var first *inputFeed
		var at position
		for _, in := range o.feed.inputs {
			for !in.ended && (in.current == nil || in.next == len(in.current.items)) {
				if in.current != nil {
					o.feed.release(in.current)
				}
				var err error
				if in.current, err = o.feed.take(in, o.unread); err != nil {
					return nil, err
				}
				if in.next = 0; in.current == nil {
					in.ended = true
				}
			}
			if in.ended {
				continue
			}
			if p := in.current.items[in.next].position(); first == nil || p.compare(at) < 0 {
				first, at = in, p
			}
		}
		if first == nil {
			break
		}
		b.items = append(b.items, first.current.items[first.next])
		b.inOrder(&b.items[len(b.items)-1])
		b.held += first.current.held/len(first.current.items) + 1
		first.next++
	}
	if len(b.items) == 0 {
		return nil, nil
	}
	return b, nil
}
