package weir

// The word of a FixedWindow is when its window began, and what was counted in it. In a calendar, it is about one window only, which begins
// at the base and ends with its reach.

func (w *fixed) rebase(s []int64, now int64) (base, reach int64, kept bool) {
	if w.latest == 0 || w.length > w.horizon/4 {
		return 0, 0, false
	}
	if len(s) > 0 && s[wordPromise] != none {
		return 0, 0, false
	}
	id := w.frames.window(now)
	if kept = len(s) == 0 || s[wordCount] == 0 || now >= w.frames.ends(s[wordWindow], 1); !kept {
		id = s[wordWindow]
	} else if len(s) > 0 {
		id = max(id, s[wordWindow])
	}
	base, reach = w.frames.begins(id), w.horizon/4
	if w.length == 0 {
		reach = w.frames.ends(id, 1) - base - 1
	}
	return base, reach, kept
}

func (w *fixed) pack(f *fastWord, s []int64) int64 {
	at := w.frames.begins(s[wordWindow]) - f.base
	if at < 0 || at > w.latest || w.length == 0 && at > 0 || s[wordCount] > w.limit || s[wordPromise] != none {
		return ask
	}
	return at<<w.bits | s[wordCount]
}

func (w *fixed) unpack(f *fastWord, word int64, s []int64) []int64 {
	id := f.base + word>>w.bits
	if w.length == 0 {
		id = w.frames.window(f.base)
	}
	return append(s[:0], id, word&(1<<w.bits-1), none)
}

func (w *fixed) step(f *fastWord, word, now, cost int64, charge bool) (next, remaining, reset, retry int64) {
	at, count, length := word>>w.bits, word&(1<<w.bits-1), w.length
	if length == 0 {
		length = f.reach + 1
	}
	if count == 0 || now-at >= length {
		begins := now
		if !w.hits {
			begins -= now % length
		}
		if at, count = max(at, begins), 0; at > w.latest {
			return 0, 0, 0, ask
		}
	}
	switch left := w.limit - count; {
	case cost > left:
		retry = at + length - now
	case charge:
		count += cost
	}
	if count > 0 {
		reset = at + length - now
	}
	return at<<w.bits | count, w.limit - count, reset, retry
}
