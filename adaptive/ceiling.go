package adaptive

// A ceiling is what Knee makes of drops. They may come from the limit: then it falls, and keeps a distance from
// where they began. Or they have another cause, such as one path that refuses on purpose, or a service that is
// down. A lower limit does not make those fewer. So a cut is a trial, and is undone if it was in vain.
type ceiling struct {
	good     float64 // the limit of the latest period without an excess of drops
	height   float64 // where drops began; 0: nowhere
	wait     int     // periods until a higher limit is tried
	patience int     // how many such periods there are; more when drops return
	tried    bool    // a higher limit was tried since the latest cut
	normal   float64 // the share of drops that have another cause
	raised   bool    // the limit was raised by more than a step: the first to finish are those that fail fast

	began float64 // the limit before the trial; 0: there is none
	share float64 // the largest share of drops in it
	cuts  int     // of the trial
	lost  bool    // at the lowest limit, nearly all was dropped
	calm  float64 // where there were no drops, before the limit was raised at once; 0: it was not
	seen  tally   // before the trial, since there are too many drops; in a trial, since the latest cut
}

// A tally counts requests that were dropped, of all that have finished.
type tally struct{ drops, all float64 }

func (t *tally) add(drops, finished int) {
	t.drops += float64(drops)
	t.all += float64(drops + finished)
}

func (t *tally) share() float64 { return t.drops / max(t.all, 1) }

// The constants of drops.
const (
	fewDrops    = 0.02 // a share of drops that is none to speak of
	fewSeen     = 4    // fewer requests than that say nothing
	normalAfter = 500  // requests after which a share of drops is the normal one
	allLost     = 0.9  // a share of drops with which the service is down
)

// shows reports whether so many requests show that their share of drops is above the normal one: whether half
// of that excess is two standard errors.
func (c *ceiling) shows(share, all float64) bool {
	excess := share - c.normal
	return all >= fewSeen && all*excess*excess >= 16*share*(1-share)
}

// heardDrops is called for each period. It reports whether the latency is not to change the limit: drops have
// changed it, or it is not known yet whether its latest cut has made them fewer.
func (k *knee) heardDrops(drops, finished int) bool {
	c := &k.ceiling
	if drops+finished == 0 {
		return c.began > 0
	}
	c.seen.add(drops, finished)
	share := c.seen.share()
	if c.began == 0 {
		switch {
		case share <= c.normal+fewDrops+c.normal*(1-c.normal)/2:
			c.seen = tally{}
			c.learn(drops, finished)
			return false
		case !c.shows(share, c.seen.all):
			return false
		}
		c.began, c.share, c.cuts, c.lost = k.limit, share, 0, false
		k.cutForDrops()
		return true
	}
	lowest := k.limit < float64(k.Min)+0.5
	switch enough := c.shows(max(c.share, share), c.seen.all); {
	case !enough:
		return true
	case share-c.normal <= (c.share-c.normal)/2:
		c.helped(k)
		return false
	}
	c.share = max(c.share, share)
	switch {
	case lowest && share >= allLost:
		c.lost, c.seen = true, tally{}
	case lowest || share < 0.5 && k.limit <= c.began/2:
		// half the limit has not made them fewer. If most requests are dropped, a limit that is still far too
		// high may be the cause
		c.normal = share
		c.raise(k, c.began)
	default:
		k.cutForDrops()
	}
	return true
}

// cutForDrops lowers the limit: by a tenth at first, then by more.
func (k *knee) cutForDrops() {
	c := &k.ceiling
	k.cut, k.fall, k.dip = state{}, state{}, state{}
	k.streak = 0
	c.height = k.limit
	if c.good > 0 && c.good < k.limit {
		c.height = (c.good + k.limit) / 2
	}
	c.patience = min(3*max(c.patience, 1), 64)
	c.tried, c.wait = false, c.patience
	if k.limit *= []float64{0.9, 0.75, 0.5}[min(c.cuts, 2)]; c.calm > 0 {
		k.limit = min(k.limit, c.calm)
	}
	c.cuts++
	c.seen = tally{}
}

// helped ends a trial after which there are fewer drops. If half the limit did not make them fewer, their cause
// may have ended by itself, as when a service was down: then the limit need not rise step by step. Where it
// was the limit after all, drops return at once, and it goes back to where there were none.
func (c *ceiling) helped(k *knee) {
	if c.lost || c.cuts > 2 && c.calm == 0 {
		c.calm = k.limit
		c.raise(k, max(k.limit, c.began/2))
		return
	}
	c.began, c.calm, c.seen = 0, 0, tally{}
}

// raise ends a trial with a higher limit, and forgets where drops began.
func (c *ceiling) raise(k *knee, limit float64) {
	k.limit, c.raised = limit, true
	c.began, c.height, c.patience, c.seen = 0, 0, 0, tally{}
}

// learn follows the share of drops that have another cause.
func (c *ceiling) learn(drops, finished int) {
	if c.normal == 0 {
		return
	}
	all := float64(drops + finished)
	c.normal += (float64(drops)/all - c.normal) * all / (all + normalAfter)
	if c.normal < fewDrops/4 {
		c.normal = 0
	}
}

// settle is called for a period in use without an excess of drops.
func (c *ceiling) settle(limit float64) {
	c.good, c.calm = limit, 0
	if c.height == 0 {
		return
	}
	if c.wait--; c.wait <= 0 && limit >= c.bound(limit+1)-0.5 {
		c.height += max(1, c.height*0.05)
		if c.tried { // and there were no drops
			c.patience = max(c.patience/2, 1)
		}
		c.tried, c.wait = true, c.patience
	}
}

// bound returns the limit, or what the ceiling leaves of it.
func (c *ceiling) bound(limit float64) float64 {
	if c.height == 0 {
		return limit
	}
	return min(limit, max(1, min(c.height-1, c.height*0.95)))
}
