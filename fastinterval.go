package weir

// The word of an IntervalBucket is the time of the last step that is counted, how many tokens are taken, and, in the lowest bit, whether
// its steps were begun anew since the state was packed. All that a state's wordGrid is for is to tell one beginning from another; where
// they were begun anew, the last step does that as well.

func (b *interval) rebase(s []int64, now int64) (base, reach int64, kept bool) {
	if b.latest == 0 || b.slow || len(s) > 0 && s[wordPromised] != none {
		return 0, 0, false
	}
	tokens, anchor, _ := b.at(s, now)
	if kept = tokens == b.size; kept {
		return anchor, b.horizon / 4, true
	}
	return s[wordAnchor], b.horizon / 4, false
}

func (b *interval) pack(f *fastWord, s []int64) int64 {
	at, taken := s[wordAnchor]-f.base, minus(b.size, s[wordTokens])
	if at < 0 || at > b.latest || taken > b.size || s[wordPromised] != none {
		return ask
	}
	return (at<<b.bits | taken) << 1
}

func (b *interval) unpack(f *fastWord, word int64, s []int64) []int64 {
	anchor := f.base + word>>1>>b.bits
	grid := anchor
	if len(s) > 0 && word&1 == 0 {
		grid = s[wordGrid]
	}
	return append(s[:0], b.size-word>>1&(1<<b.bits-1), anchor, grid, none)
}

func (b *interval) step(_ *fastWord, word, now, cost int64, charge bool) (next, remaining, reset, retry int64) {
	anew := word & 1
	at, taken := word>>1>>b.bits, word>>1&(1<<b.bits-1)
	if past := now - at; taken > 0 && past >= b.every {
		if steps := past / b.every; steps >= b.steps(taken) {
			taken = 0
		} else {
			taken -= steps * b.refill
			at += steps * b.every
		}
	}
	if taken == 0 {
		at = max(at, now)
	}
	switch lacks := cost - (b.size - taken); {
	case lacks > 0:
		retry = at + b.steps(lacks)*b.every - now
	case charge:
		if taken == 0 {
			anew = 1
		}
		if taken += cost; at > b.latest {
			return 0, 0, 0, ask
		}
	}
	if taken > 0 {
		reset = at + b.steps(taken)*b.every - now
	}
	return (at<<b.bits|taken)<<1 | anew, b.size - taken, reset, retry
}

// steps is how many steps bring some tokens, above 0.
func (b *interval) steps(tokens int64) int64 {
	if tokens <= b.refill {
		return 1
	}
	return (tokens-1)/b.refill + 1
}
