package packed

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/u128"
)

// TestRoundTrip: what is written is read, and what is cut off is an error.
func TestRoundTrip(t *testing.T) {
	ints := []int64{0, 1, -1, 63, -64, 1 << 40, math.MaxInt64, math.MinInt64, math.MinInt64 + 1}
	var b []byte
	b = Ints(b, ints)
	b = Wide(Bytes(Bool(b, true), "text"), u128.Max())
	b = Uint(b, math.MaxUint64)
	read := func(b []byte) error {
		r := NewReader(b)
		if got := r.Ints(100); r.Err() == nil && !slices.Equal(got, ints) {
			t.Errorf("%v", got)
		}
		if v, text, wide, u := r.Bool(), r.Bytes(), r.Wide(), r.Uint(); r.Err() == nil && (!v || !bytes.Equal(text, []byte("text")) || wide != u128.Max() || u != math.MaxUint64) {
			t.Errorf("%v %q %v %d", v, text, wide, u)
		}
		return r.End()
	}
	if err := read(b); err != nil {
		t.Error(err)
	}
	for n := range b {
		if read(b[:n]) == nil {
			t.Errorf("cut off after %d bytes", n)
		}
	}
	if read(append(b, 0)) == nil {
		t.Error("a byte too many")
	}
	for _, wrong := range [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, {5, 1}, {2}} {
		r := NewReader(wrong)
		if n := r.Count(1 << 30); n > len(wrong) {
			t.Errorf("%x: %d of something", wrong, n)
		}
	}
	if len(Int(nil, math.MinInt64)) != 1 || len(Int(nil, -60)) != 1 || len(Int(nil, 60)) != 1 {
		t.Error("frequent numbers take more than a byte")
	}
}
