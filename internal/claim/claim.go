// Package claim makes marks that can be claimed once: the first claim wins, however many copies of
// the mark there are. 512 marks share a block, so a mark costs a fraction of an allocation. The
// garbage collector frees a block with its last mark: a mark that is never claimed leaks nothing.
package claim

import (
	"sync/atomic"
)

// A Mark may be claimed once. Copies are the same mark. The zero Mark counts as claimed.
type Mark struct {
	word *atomic.Uint64
	bit  uint64
}

// Claim reports whether this call was the first for the mark. It is safe for concurrent use.
func (m Mark) Claim() bool {
	return m.word != nil && m.word.Or(m.bit)&m.bit == 0
}

// Claimed reports whether the mark has been claimed.
func (m Mark) Claimed() bool {
	return m.word == nil || m.word.Load()&m.bit != 0
}

const blockWords = 8 // 512 marks in 64 bytes

type block struct {
	words [blockWords]atomic.Uint64
}

// Marks makes marks. The zero value is ready. It is not safe for concurrent use: its owner's lock
// guards it.
type Marks struct {
	block *block
	used  int
}

// Next returns a mark never handed out before. One call in 512 allocates 64 bytes.
func (s *Marks) Next() Mark {
	if s.block == nil || s.used == blockWords*64 {
		s.block, s.used = new(block), 0
	}
	n := s.used
	s.used++
	return Mark{&s.block.words[n/64], 1 << (n % 64)}
}
