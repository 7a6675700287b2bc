package keyed

import "sync/atomic"

// vacate empties a locked slot. Keys of later lines that would otherwise be behind a line with an empty slot,
// where no search finds them, move into it and into each other's slots: so a search is as short as if the keys
// that are gone had never been there. It reports whether a key moved from the begin of the array to its end.
//
// This is deletion by backward shift, as in Knuth, The Art of Computer Programming, volume 3, section 6.4,
// algorithm R, with lines in place of slots.
func (s *segment[K]) vacate(slot int, now int64) (wrapped bool) {
	a := s.array
	from := s.behind(slot)
	if from >= 0 {
		a.moves.Add(1)
		for ; from >= 0; from = s.behind(slot) {
			s.shift(from, slot, now)
			wrapped = wrapped || from < slot
			slot = from
		}
		defer a.moves.Add(1)
	}
	if a.keys != nil {
		var none K
		a.keys[slot/a.size] = none
	}
	a.unlock(slot, 0)
	return wrapped
}

// behind returns the slot of a key that no search finds once a slot is empty; below 0 if there is none.
func (s *segment[K]) behind(slot int) int {
	a := s.array
	width, lines := perLine*a.size, int(a.lines)
	line := slot / width
	full := a.full(line)
	for i := 1; full && i <= int(a.far.Load()); i++ {
		at := (line + i) % lines
		for other := at * width; other < (at+1)*width; other += a.size {
			head := atomic.LoadInt64(&a.slots[other])
			if head&used == 0 {
				full = false
				continue
			}
			passed := at - a.home(a.hash(other, head, s.prefix))
			if passed < 0 {
				passed += lines
			}
			if passed >= i {
				return other
			}
		}
	}
	return -1
}

// full reports whether all slots of a line are used.
func (a *array[K]) full(line int) bool {
	all := int64(used)
	for i := range perLine {
		all &= atomic.LoadInt64(&a.slots[(line*perLine+i)*a.size])
	}
	return all != 0
}

// shift moves a key into another slot, which is locked, and unlocks it there. The slot that it leaves stays
// locked.
func (s *segment[K]) shift(from, to int, now int64) {
	a := s.array
	head, _ := a.lockUsed(from) // it is used: the caller holds the segment's lock
	if b, was := s.block(to), s.block(from); b != was {
		if s.idle.lower(b, s.freeAt(from, head, now)); s.ranks.blocks != nil {
			s.ranks.lower(b, s.ranks.blocks[was])
		}
	}
	copy(a.words(to), a.words(from))
	if a.keys != nil {
		a.keys[to/a.size] = a.keys[from/a.size]
	}
	if a.high != nil {
		a.high[to/a.size] = a.high[from/a.size]
	}
	a.unlock(to, head)
}
