package sim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/raced"
)

type rec struct {
	key int64
	seq uint32
}

func TestSorter(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		memory := []int{1 << 20, 2000, 300, 1}[seed%4]
		s := newSorter(t.TempDir(), memory)
		var want []rec
		key := int64(0)
		for i := range r.IntN(400) {
			if seed%3 == 0 {
				key += r.Int64N(2) // in order
			} else {
				key = r.Int64N(50) - 25
			}
			want = append(want, rec{key, uint32(i)})
			if err := s.add(key, binary.LittleEndian.AppendUint32(make([]byte, 0, 4), uint32(i))); err != nil {
				t.Fatal(err)
			}
		}
		ordered := slices.IsSortedFunc(want, func(a, b rec) int { return cmp.Compare(a.key, b.key) })
		if s.ordered != ordered {
			t.Errorf("seed %d: ordered is %v", seed, s.ordered)
		}
		slices.SortStableFunc(want, func(a, b rec) int { return cmp.Compare(a.key, b.key) })
		var got []rec
		if err := s.each(func(key int64, payload string) error {
			got = append(got, rec{key, binary.LittleEndian.Uint32([]byte(payload))})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || s.count != int64(len(want)) {
			t.Fatalf("seed %d, %d bytes: got %v\nwant %v", seed, memory, got, want)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSorterLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	s := newSorter(dir, 1)
	for i := range int64(10) {
		if err := s.add(-i, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	stop := errors.New("stop")
	if err := s.each(func(int64, string) error { return stop }); err != stop {
		t.Errorf("%v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v", left)
	}
	nowhere := newSorter(filepath.Join(dir, "none"), 1)
	nowhere.add(1, nil)
	if err := nowhere.add(2, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestSortRecords compares with the standard library's sort, for keys from one end of the clock to
// the other.
func TestSortRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, width := range []uint64{1, 2, 1 << 11, 1 << 12, 1 << 43, 1 << 63, math.MaxUint64} {
		for _, n := range []int{0, 1, 2, 100, 5000} {
			records := make([]record, n)
			for i := range records {
				records[i] = record{key: int64(r.Uint64N(width) - width/2), offset: uint32(i)}
			}
			want := slices.Clone(records)
			slices.SortStableFunc(want, func(a, b record) int { return cmp.Compare(a.key, b.key) })
			if got := sortRecords(records); !slices.Equal(got, want) {
				t.Errorf("%d keys of %d are not sorted", n, width)
			}
		}
	}
}
