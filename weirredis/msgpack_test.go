package weirredis

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestMessagePack(t *testing.T) {
	for _, v := range []int64{0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1 << 31, 1<<31 - 1, 1 << 32, 1<<53 - 1, math.MaxInt64,
		-1, -32, -33, -128, -129, -32768, -32769, -1 << 31, -1<<31 - 1, math.MinInt64} {
		r := &reader{b: string(appendInt(nil, v))}
		if got := r.int(); got != v || r.err != nil || r.b != "" {
			t.Errorf("%d is read as %d, %v", v, got, r.err)
		}
	}
	for _, n := range []int{0, 1, 31, 32, 255, 256, 65535, 65536} {
		want := strings.Repeat("x", n)
		r := &reader{b: string(appendString(nil, want))}
		if !r.text() {
			t.Errorf("%d bytes are no text", n)
		}
		if got := r.string(); got != want || r.err != nil || r.b != "" {
			t.Errorf("%d bytes are read as %d, %v", n, len(got), r.err)
		}
		r = &reader{b: string(appendArray(nil, n))}
		if got := r.array(); got != n || r.err != nil || r.b != "" {
			t.Errorf("an array of %d is read as one of %d, %v", n, got, r.err)
		}
	}
}

// FuzzReader reads any bytes: it ends, never reads beyond them, and reports an error in them.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0x93, 1, 0xa1, 'x', 0xd3, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xdb, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &reader{b: string(data)}
		for r.err == nil && r.b != "" {
			before := len(r.b)
			switch c := r.b[0]; {
			case r.text():
				s := r.string()
				if r.err == nil && !bytes.Contains(data, []byte(s)) {
					t.Fatalf("%q is not in %q", s, data)
				}
			case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
				r.array()
			default:
				r.int()
			}
			if len(r.b) >= before {
				t.Fatal("nothing was read")
			}
		}
	})
}
