package adaptive

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir"
)

// A Partition is a share of the limit for some of the requests, which Request.Partition names.
// While it does not use its share, others may. As soon as it does, each of its requests within the
// share goes before all that are beyond theirs, and takes the next place that is free.
type Partition struct {
	Name  string
	Share float64 // of the limit, above 0 and up to 1. The shares of all partitions add up to 1 at most
}

// validate returns an error if partitions are invalid.
func validPartitions(all []Partition) error {
	if len(all) >= mostParts {
		return &weir.FieldError{Limit: "adaptive.Options", Field: "Partitions", Err: fmt.Errorf("%d are too many: %d is the most", len(all), mostParts-1)}
	}
	sum, seen := 0.0, map[string]bool{}
	for i, p := range all {
		fail := func(format string, args ...any) error {
			return &weir.FieldError{Limit: "adaptive.Options", Field: fmt.Sprintf("Partitions[%d]", i), Err: fmt.Errorf(format, args...)}
		}
		switch sum += p.Share; {
		case p.Name == "":
			return fail("it has no name: requests without a name share what the partitions leave")
		case seen[p.Name]:
			return fail("there are two of the name %q", p.Name)
		case !(p.Share > 0 && p.Share <= 1):
			return fail("the share %g of %q must be above 0 and at most 1", p.Share, p.Name)
		case sum > 1+1e-9:
			return fail("the shares up to %q add up to %g: they must be 1 at most", p.Name, sum)
		}
		seen[p.Name] = true
	}
	return nil
}

const (
	userBits  = 7 // users are hashed into 128 buckets
	rankCount = levelCount << userBits
	turn      = int64(time.Minute)      // so long are a user's requests in the same bucket
	recount   = 512                     // arrivals until the threshold is computed again
	lend      = int64(time.Second)      // after so long without use, half of what is kept is lent
	forget    = int64(30 * time.Second) // headroom that nobody needs is halved after so long
	watch     = 1024                    // arrivals until headroom is lowered
	growth    = 1. / 16                 // of the limit, by which headroom is raised
)

// A part is the state of a partition, and of the requests of none. The lock of the gate guards it.
//
// Headroom decides between levels: places that the requests of a level leave free for those of
// higher levels. It is raised when one of those is refused nevertheless, and lowered by half of what
// was never used in a while. So it is what the important requests need, and no more.
//
// The threshold decides within the level that fits in part: requests are ranked by their level and
// then by a hash of the user, and those below the threshold are refused while nearly all places
// are taken. It is where the number of requests above it is what was admitted (as in DAGOR, which
// WeChat has published).
type part struct {
	name  string
	share float64
	held  int64

	want    float64 // so many places of its share are kept for it
	peak    float64 // the most that it held since wanted
	wanted  int64
	arrival int64 // when a request last came

	threshold         int
	arrived, admitted uint64 // since the last two thresholds or so
	counts            [rankCount]uint32
	until             uint64

	keep    [levelCount]float64 // headroom for higher levels, in multiples of the limit
	least   [levelCount]float64 // the fewest free places that arrivals of higher levels found
	seen    [levelCount]int     // how many of them there were
	higher  [levelCount]int64   // when a request of a higher level last came
	last    [levelCount]int64   // when a request of this level last came; 0: never
	refused [levelCount]uint64

	lines [levelCount]line
	calm  [levelCount]int64 // when the line was last empty, or one that left it had not waited for long
	late  [levelCount]bool  // requests wait for long
	n     int               // how many wait
}

// settle forgets what was long ago.
func (p *part) settle(now int64) {
	for level := range p.keep {
		if now-p.higher[level] > forget && p.keep[level] > 0 {
			p.higher[level] = now
			if p.keep[level] /= 2; p.keep[level] < 1e-3 {
				p.keep[level] = 0
			}
		}
	}
	if now-p.wanted <= lend {
		return
	}
	// a place is kept for longer, so that a request now and then finds one
	if p.want = max(p.peak, p.want/2); p.want < 1 {
		if p.want = 0; now-p.arrival < forget {
			p.want = 1
		}
	}
	p.peak, p.wanted = float64(p.held), now
}

// wish notes that the part wants so many places, of so many.
func (p *part) wish(n float64, places int64) {
	p.peak = max(p.peak, float64(p.held))
	p.want = max(p.want, min(n, math.Ceil(p.share*float64(places))))
}

// lacks returns how many places of its share the part may soon take.
func (p *part) lacks(places float64) float64 {
	return max(min(p.want, math.Ceil(p.share*places))-float64(p.held), 0)
}

// leave returns how many places a request of the level leaves free, of so many.
func (p *part) leave(level int, places int64) int64 {
	most := 0.0
	for _, keep := range p.keep[level:] {
		most = max(most, keep)
	}
	return min(int64(math.Ceil(most*float64(places))), max(places-1, 0))
}

// see notes how many places a request of a level finds free.
func (p *part) see(level int, free int64, places float64, now int64) {
	p.last[level], p.arrival = max(now, 1), now
	spare := float64(max(free, 0)) - math.Ceil(p.keep[level]*places)
	for lower := range level {
		p.higher[lower] = now
		if p.keep[lower] == 0 {
			continue
		}
		if p.seen[lower] == 0 || spare < p.least[lower] {
			p.least[lower] = spare
		}
		if p.seen[lower]++; p.seen[lower] < watch {
			continue
		}
		// some are left, as the next time may need more
		if over := p.least[lower]/places - max(p.keep[lower]/4, 2/places); over > 0 {
			p.keep[lower] = max(p.keep[lower]-over/2, 0)
		}
		p.seen[lower] = 0
	}
}

// above reports whether there have been requests of lower levels recently.
func (p *part) above(level int) bool {
	for lower := range level {
		if p.last[lower] != 0 && p.last[level]-p.last[lower] < forget {
			return true
		}
	}
	return false
}

// raise is called when a request of a level is refused: lower levels leave more.
func (p *part) raise(level int, why reason) {
	if why == gone {
		return
	}
	for lower := range level {
		if p.last[lower] != 0 && p.higher[lower]-p.last[lower] < forget {
			p.keep[lower] = min(max(p.keep[lower]+growth, 2*growth), 1)
			p.seen[lower] = 0
		}
	}
}

// count counts an arrival, and computes the threshold now and then.
func (p *part) count(rank int) {
	p.counts[rank]++
	if p.arrived++; p.arrived < p.until {
		return
	}
	p.threshold = 0
	if p.admitted < p.arrived {
		// a little more than what was admitted: what has fallen must be able to rise
		rest := uint64(float64(p.admitted)*1.05) + 1
		for r := rankCount - 1; r >= 0; r-- {
			if rest < uint64(p.counts[r]) {
				p.threshold = r + 1
				break
			}
			rest -= uint64(p.counts[r])
		}
	}
	p.arrived, p.admitted = 0, p.admitted/2
	for r := range p.counts {
		p.counts[r] /= 2
		p.arrived += uint64(p.counts[r])
	}
	p.until = p.arrived + recount
}

// spread returns a number that is evenly spread, and the same for a user for some time.
func spread(user uint64, now int64) uint64 {
	x := user + uint64(now/turn)*golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
