package adaptive

// A ceiling is what Knee remembers of drops: near the limit at which they began, it rises by single
// steps, with pauses that grow while the drops return.
type ceiling struct {
	good     float64 // the limit of the latest period without drops
	series   int     // how many periods with drops there were since
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
	k.cut, k.fall, k.dip = state{}, state{}, state{}
	height := k.limit
	if c.good > 0 && c.good < k.limit {
		height = (c.good + k.limit) / 2
	}
	c.height = height
	c.patience = min(2*max(c.patience, 1), 64)
	c.wait = c.patience
	k.streak = 0
	k.limit *= []float64{0.9, 0.75, 0.5}[min(c.series, 2)]
	c.series++
	return true
}

// settle is called for a period in use without an excess of drops.
func (c *ceiling) settle(limit float64) {
	c.began, c.series, c.good = 0, 0, limit
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
