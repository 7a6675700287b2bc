package adaptive

// A ceiling is what Knee remembers of drops: near the limit at which they began, it rises by single
// steps, with pauses that grow while the drops return.
type ceiling struct {
	height   float64 // where drops began; 0: nowhere
	wait     int     // periods until a higher limit is tried
	patience int     // how many such periods there are after the next drop
	began    float64 // the limit before the latest series of cuts
	share    float64 // the share of drops then
	normal   float64 // a share of drops that does not fall with the limit
}

// heardDrops lowers the limit after drops, if they are more than a few. It reports whether it did;
// finished is how many requests were not dropped.
func (k *knee) heardDrops(drops, finished int) bool {
	c := &k.ceiling
	share := float64(drops) / float64(drops+finished)
	if drops < 2 || share <= 0.02+1.5*c.normal {
		return false
	}
	if c.began == 0 {
		c.began, c.share = k.limit, share
	}
	if k.limit <= c.began/2 && share > 0.7*c.share && share < 0.5 {
		// half the limit has not made them fewer: they have another cause. If most requests are
		// dropped, a limit that is still far too high may be the cause
		c.normal = share
		k.limit, c.height, c.began = c.began, 0, 0
		return true
	}
	k.cut, k.dip = state{}, state{}
	c.height = k.limit
	c.patience = min(2*max(c.patience, 1), 64)
	c.wait = c.patience
	k.streak = 0
	// a period that drops have ended early does not tell their share
	k.limit *= 1 - min(0.5, max(0.1, share*min(1, float64(drops+finished)/fewest)))
	return true
}

// settle is called for a period in use without an excess of drops.
func (c *ceiling) settle(limit float64) {
	c.began = 0
	c.normal *= 0.99
	if c.height == 0 {
		return
	}
	if c.wait--; c.wait <= 0 && limit >= c.bound(limit+1)-0.5 {
		c.height += max(1, c.height*0.05)
		c.patience = max(c.patience/2, 1)
		c.wait = c.patience
	}
}

// bound returns the limit, or what the ceiling leaves of it.
func (c *ceiling) bound(limit float64) float64 {
	if c.height == 0 {
		return limit
	}
	return min(limit, max(1, min(c.height-1, c.height*0.95)))
}
