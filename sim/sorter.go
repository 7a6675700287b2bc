package sim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/weirflow/weir/internal/heap"
)

// sorter sorts records by their keys, stably. It keeps a bounded amount in memory and the rest in
// temporary files. It does not sort records that arrive in order.
type sorter struct {
	dir    string // for temporary files; default: the system's
	memory int    // bytes to keep at most, approximately

	// in blocks: growing one large slice would copy tens of megabytes and stall the garbage
	// collector
	blocks  [][]record
	records int             // the number of records
	chunks  []string        // the payloads, in chunks for the same reason
	chunk   strings.Builder // the last chunk, until it is full
	bytes   int
	runs    []*os.File
	last    int64
	ordered bool // all keys so far came in order
	started bool
	count   int64
	touched byte // keeps the compiler from removing touch
}

// record is a key and the place of its payload.
type record struct {
	key                int64
	chunk, offset, len uint32
}

const (
	recordSize   = 2 * 24 // sorting needs the same again
	chunkSize    = 1 << 20
	blockRecords = 1 << 14
)

func newSorter(dir string, memory int) *sorter {
	return &sorter{dir: dir, memory: memory, ordered: true}
}

// add adds a record, and copies its payload.
func (s *sorter) add(key int64, payload []byte) error {
	if s.started && key < s.last {
		s.ordered = false
	}
	s.started, s.last = true, key
	if s.records > 0 && s.bytes+len(payload)+(s.records+1)*recordSize > s.memory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if s.chunk.Len()+len(payload) > s.chunk.Cap() {
		s.finishChunk()
		s.chunk.Grow(max(chunkSize, len(payload)))
	}
	if s.records%blockRecords == 0 {
		s.blocks = append(s.blocks, make([]record, 0, blockRecords))
	}
	last := &s.blocks[len(s.blocks)-1]
	*last = append(*last, record{key, uint32(len(s.chunks)), uint32(s.chunk.Len()), uint32(len(payload))})
	s.records++
	s.chunk.Write(payload)
	s.bytes += len(payload)
	s.count++
	return nil
}

// finishChunk completes the current chunk.
func (s *sorter) finishChunk() {
	if s.chunk.Len() > 0 {
		s.chunks = append(s.chunks, s.chunk.String())
	}
	s.chunk.Reset()
}

// payloadOf returns the payload of a record.
func (s *sorter) payloadOf(r record) string { return s.chunks[r.chunk][r.offset : r.offset+r.len] }

// sortRun sorts the records in memory.
func (s *sorter) sortRun() {
	s.finishChunk()
	if !s.ordered {
		s.blocks = [][]record{sortRecords(slices.Concat(s.blocks...))}
	}
}

// digitBits is how much of a key sortRecords looks at in one pass.
const digitBits = 9

// sortRecords sorts by key, stably. It is a radix sort over the distance to the smallest key, from
// the last digit on: one pass over all records for each digit, and no comparisons.
func sortRecords(from []record) []record {
	if len(from) == 0 {
		return from
	}
	least, most := from[0].key, from[0].key
	for i := range from {
		least, most = min(least, from[i].key), max(most, from[i].key)
	}
	to := make([]record, len(from))
	span := uint64(most) - uint64(least)
	for shift := 0; shift < 64 && span>>shift > 0; shift += digitBits {
		digit := func(r *record) uint64 { return (uint64(r.key) - uint64(least)) >> shift % (1 << digitBits) }
		var next [1 << digitBits]int // index for the next record with this digit
		for i := range from {
			next[digit(&from[i])]++
		}
		sum := 0
		for d, n := range next {
			next[d] = sum
			sum += n
		}
		for i := range from {
			d := digit(&from[i])
			to[next[d]] = from[i]
			next[d]++
		}
		from, to = to, from
	}
	return from
}

// spill sorts the records in memory and writes them to a temporary file.
func (s *sorter) spill() (err error) {
	f, err := os.CreateTemp(s.dir, "weir-replay-*")
	if err != nil {
		return fmt.Errorf("the log is larger than %d MiB and must be sorted in a temporary file: %w", s.memory>>20, err)
	}
	s.runs = append(s.runs, f)
	// unlinked while open, so a crash leaves no file; if the system forbids that, close removes it
	os.Remove(f.Name())
	s.sortRun()
	w := bufio.NewWriterSize(f, 1<<18)
	var head [2 * binary.MaxVarintLen64]byte
	for _, records := range s.blocks {
		for _, r := range records {
			n := binary.PutVarint(head[:], r.key)
			n += binary.PutUvarint(head[n:], uint64(r.len))
			w.Write(head[:n])
			w.WriteString(s.payloadOf(r))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sorting in a temporary file: %w", err)
	}
	s.blocks, s.records, s.chunks, s.bytes = nil, 0, nil, 0
	return nil
}

// each calls f with all records in order. No record can be added afterwards.
func (s *sorter) each(f func(key int64, payload string) error) error {
	s.sortRun()
	if len(s.runs) == 0 {
		for _, records := range s.blocks {
			if err := s.eachOfRun(records, f); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	return s.merge(f)
}

func (s *sorter) eachOfRun(records []record, f func(key int64, payload string) error) error {
	for i, r := range records {
		if !s.ordered && i%prefetchCount == 0 {
			s.prefetch(records[i:min(i+prefetchCount, len(records))])
		}
		if err := f(r.key, s.payloadOf(r)); err != nil {
			return err
		}
	}
	return nil
}

// prefetchCount is the number of records that prefetch prefetches at once.
const prefetchCount = 16

// prefetch prefetches the payloads of some records. Records out of order are scattered in memory; the
// CPU loads several payloads in little more time than one.
func (s *sorter) prefetch(records []record) {
	for _, r := range records {
		if r.len > 0 {
			s.touched ^= s.chunks[r.chunk][r.offset]
		}
	}
}

// merge merges all runs.
func (s *sorter) merge(f func(key int64, payload string) error) error {
	var runs heap.Heap[run] // of records with equal keys, those of an earlier run came earlier
	for _, file := range s.runs {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		r := &run{r: bufio.NewReaderSize(file, 1<<16)}
		if err := r.next(); err == nil {
			runs.Push(&r.node, r, r.key)
		} else if err != io.EOF {
			return err
		}
	}
	for r, _ := runs.First(); r != nil; r, _ = runs.First() {
		if err := f(r.key, r.payload); err != nil {
			return err
		}
		switch err := r.next(); err {
		case nil:
			runs.Move(&r.node, r.key)
		case io.EOF:
			runs.Remove(&r.node)
		default:
			return err
		}
	}
	return nil
}

// close removes the temporary files.
func (s *sorter) close() error {
	var errs []error
	for _, f := range s.runs {
		errs = append(errs, f.Close())
		if err := os.Remove(f.Name()); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	s.runs = nil
	return errors.Join(errs...)
}

// run is a sorted temporary file that is being read.
type run struct {
	node    heap.Node[run]
	r       *bufio.Reader
	key     int64
	payload string
	buf     []byte
}

// next reads a record, or returns io.EOF.
func (r *run) next() error {
	key, err := binary.ReadVarint(r.r)
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return fmt.Errorf("a temporary file is truncated: %w", err)
	}
	r.buf = slices.Grow(r.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return fmt.Errorf("a temporary file is truncated: %w", err)
	}
	r.key, r.payload = key, string(r.buf)
	return nil
}
