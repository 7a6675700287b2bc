package policy_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
)

// Free and Refused complete a policy.SharedMemory.
func (b *bounded) Free() int64 { return b.most - b.used }
func (b *bounded) Refused()    {}

// TestBodyShares: however clients take memory, each one has at most as much as is then free, so there
// is always room for one that has none; and nothing is left of those that have released theirs.
func TestBodyShares(t *testing.T) {
	r := rand.New(rand.NewPCG(seeds.Seed(), 5))
	m := &bounded{most: 1000}
	var shares policy.BodyShares
	type taken struct {
		memory policy.BodyMemory
		n      int64
	}
	var all []taken
	used := map[string]int64{}
	for range 5000 {
		client := string(rune('a' + r.IntN(6)))
		n := 1 + r.Int64N(100)
		of := shares.Of(client, m)
		if fits := used[client]+n <= m.most-m.used-n; of.Reserve(n) != fits {
			t.Fatalf("%d more for %d of %d: want %v", n, used[client], m.used, fits)
		} else if fits {
			used[client] += n
			all = append(all, taken{of, n})
		}
		if newcomer := shares.Of("new", m); m.Free() >= 2 {
			if !newcomer.Reserve(1) {
				t.Fatalf("%d are free, and a client without any gets none", m.Free())
			}
			newcomer.Release(1)
		}
		if r.IntN(3) == 0 {
			clear(used)
			for _, t := range all {
				t.memory.Release(t.n)
			}
			all = nil
			if m.used != 0 {
				t.Fatalf("%d are left", m.used)
			}
		}
	}
}
