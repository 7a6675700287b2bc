package u128

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/weirflow/weir/internal/raced"
)

func (a Uint) big() *big.Int {
	v := new(big.Int).Lsh(new(big.Int).SetUint64(a.Hi), 64)
	return v.Or(v, new(big.Int).SetUint64(a.Lo))
}

// edge draws numbers near the borders as often as anywhere.
func edge(r *rand.Rand) uint64 {
	switch r.IntN(5) {
	case 0:
		return uint64(r.IntN(4))
	case 1:
		return math.MaxUint64 - uint64(r.IntN(4))
	case 2:
		return 1<<63 + uint64(r.IntN(5)) - 2
	case 3:
		return r.Uint64() >> r.IntN(64)
	}
	return r.Uint64()
}

func TestAgainstBig(t *testing.T) {
	raced.Skip(t)
	r := rand.New(rand.NewPCG(1, 2))
	limit := new(big.Int).Lsh(big.NewInt(1), 128)
	for range 200_000 {
		a, b, d := Uint{edge(r), edge(r)}, Uint{edge(r), edge(r)}, edge(r)
		if got, want := Mul(a.Lo, b.Lo).big(), new(big.Int).Mul(From(a.Lo).big(), From(b.Lo).big()); got.Cmp(want) != 0 {
			t.Fatalf("Mul(%d, %d) = %d, want %d", a.Lo, b.Lo, got, want)
		}
		sum := new(big.Int).Add(a.big(), b.big())
		if sum.Cmp(limit) >= 0 {
			sum = Max().big()
		}
		if got := a.Add(b).big(); got.Cmp(sum) != 0 {
			t.Fatalf("%v + %v = %d, want %d", a, b, got, sum)
		}
		diff := new(big.Int).Sub(a.big(), b.big())
		if diff.Sign() < 0 {
			diff.SetInt64(0)
		}
		if got := a.Sub(b).big(); got.Cmp(diff) != 0 {
			t.Fatalf("%v - %v = %d, want %d", a, b, got, diff)
		}
		if got, want := a.Cmp(b), a.big().Cmp(b.big()); got != want || a.Less(b) != (want < 0) {
			t.Fatalf("%v cmp %v = %d, want %d", a, b, got, want)
		}
		if got := a.Min(b).big(); got.Cmp(a.big()) > 0 || got.Cmp(b.big()) > 0 {
			t.Fatalf("min(%v, %v) = %d", a, b, got)
		}
		if d == 0 {
			continue
		}
		q, m := new(big.Int).DivMod(a.big(), From(d).big(), new(big.Int))
		gq, gm, fits := a.Div(d)
		if fits != q.IsUint64() || fits && (gq != q.Uint64() || gm != m.Uint64()) {
			t.Fatalf("%v / %d = %d, %d, %v, want %d, %d", a, d, gq, gm, fits, q, m)
		}
		up := q
		if m.Sign() > 0 {
			up = new(big.Int).Add(q, big.NewInt(1))
		}
		if !up.IsUint64() {
			up = new(big.Int).SetUint64(math.MaxUint64)
		}
		if got := a.DivCeil(d); got != up.Uint64() {
			t.Fatalf("ceil(%v / %d) = %d, want %d", a, d, got, up)
		}
	}
	if !(Uint{}).IsZero() || Max().IsZero() {
		t.Error("IsZero is wrong")
	}
}
