package weir_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/weirtest"
)

// TestALayoutDecidesAsItsLimit: the packed words of a table give the same decisions as states, with
// clocks that step back and jump.
func TestALayoutDecidesAsItsLimit(t *testing.T) {
	raced.Skip(t)
	short := map[string]int{}
	for _, draw := range weirtest.Limits() {
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 7))
			limit := draw(random)
			p, err := weir.Prepare(limit, 1)
			if err != nil {
				t.Fatal(err)
			}
			now := random.Int64N(1<<62) - 1<<61
			l := p.Layout(now)
			if l == nil {
				continue
			}
			var state []int64
			words := make([]int64, l.Words())
			packed := l.Fresh(words)
			for range 200 {
				cost := random.Int64N(5)
				charge := random.IntN(3) > 0
				var got, want weir.Decision
				if want = p.Peek(state, now, cost); charge {
					state, want = p.Step(state, now, cost)
				}
				if packed && l.Decide(&got, words, now, cost, charge) {
					if short[l.String()]++; got != want {
						t.Fatalf("%+v at %d: cost %d, charge %v: got %+v, want %+v", limit, now, cost, charge, got, want)
					}
				} else if !l.Covers(now) {
					l = p.Layout(now)
					packed = len(state) > 0 && l != nil && l.Pack(words, state)
				} else {
					packed = len(state) > 0 && l.Pack(words, state)
				}
				if packed {
					if reset, ok := l.ResetAfter(words, now); ok && reset != p.Peek(state, now, 0).ResetAfter {
						t.Fatalf("%+v at %d: %v is free after %v", limit, now, state, reset)
					}
					if again := l.Unpack(nil, words); p.Peek(again, now, 1) != p.Peek(state, now, 1) {
						t.Fatalf("%+v at %d: %v came out as %v", limit, now, state, again)
					}
				}
				switch random.IntN(12) {
				case 0:
					now += random.Int64N(int64(100 * 24 * time.Hour))
				case 1:
					now -= random.Int64N(int64(time.Minute))
				default:
					now += random.Int64N(max(1, min(2*int64(want.ResetAfter), int64(time.Hour))))
				}
				if l == nil {
					break
				}
			}
		}
	}
	t.Log(short)
	for _, kind := range []string{"a word, a bucket", "a word", "words"} {
		if short[kind] < 10_000 {
			t.Errorf("%q decided %d times", kind, short[kind])
		}
	}
}
