package redis

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// limb is the base in which the scripts write large numbers.
const limb = 1 << 24

// calculator is a script that computes with head.lua and num.lua. Each argument is two numbers, as
// limbs, the lowest first.
const calculator = `
local function number(s)
  local a = {}
  for digit in string.gmatch(s, '%d+') do
    a[#a + 1] = tonumber(digit)
  end
  return a
end
local function text(a)
  local digits = {}
  for i, x in ipairs(limbs(a)) do
    assert(x >= 0 and x < limb and x == floor(x))
    digits[i] = string.format('%.0f', x)
  end
  assert(digits[#digits] ~= '0')
  return table.concat(digits, ' ')
end
local answers = {}
for i, pair in ipairs(ARGV) do
  local a, b = string.match(pair, '(.*)/(.*)')
  a, b = number(a), number(b)
  local q, r = bigdiv(a, b)
  local wa, wb = wide(number(text(a))), wide(number(text(b)))
  a, b = limbs(wa), limbs(wb)
  local all = {q, r, bigup(a, b), bigmul(a, b), bigadd(a, b), bigless(a, b), small(a), bigcompare(a, b) + 1,
    wideover(wa, wb), wideup(wa, wb), widemul(wa, wb), wideadd(wa, wb), wideless(wa, wb), wideleast(wa, wb), narrow(wa)}
  for j, x in ipairs(all) do
    all[j] = text(x)
  end
  answers[i] = table.concat(all, ',')
end
return answers`

// computed returns the expected results of calculator for a and b.
func computed(a, b *big.Int) []*big.Int {
	most := big.NewInt(1<<53 - 1)
	least := func(x, y *big.Int) *big.Int {
		if x.Cmp(y) < 0 {
			return x
		}
		return y
	}
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	up := new(big.Int).Set(q)
	if r.Sign() > 0 {
		up.Add(up, big.NewInt(1))
	}
	mul, add, less := new(big.Int).Mul(a, b), new(big.Int).Add(a, b), new(big.Int).Sub(a, b)
	if less.Sign() < 0 {
		less.SetInt64(0)
	}
	return []*big.Int{
		q, r, up, mul, add, less, least(a, most), big.NewInt(int64(a.Cmp(b) + 1)),
		q, up, mul, add, less, least(a, b), least(a, most),
	}
}

func limbsOf(v *big.Int) string {
	var b strings.Builder
	for v = new(big.Int).Set(v); v.Sign() > 0; v.Rsh(v, 24) {
		fmt.Fprintf(&b, "%d ", new(big.Int).And(v, big.NewInt(limb-1)))
	}
	return strings.TrimSpace(b.String())
}

// nasty draws a number of so many limbs: zeros, all bits, a single bit, or any.
func nasty(r *rand.Rand, limbs int) *big.Int {
	v := new(big.Int)
	for range limbs {
		x := []int64{0, 0, limb - 1, limb - 1, limb - 2, 1, limb / 2, limb/2 - 1, limb/2 + 1, r.Int64N(limb), r.Int64N(limb)}[r.IntN(11)]
		v.Lsh(v, 24).Add(v, big.NewInt(x))
	}
	return v
}

// operands draws a dividend and a divisor. Some make the first guess of a quotient's digit one too
// high: a dividend that is one less than a multiple of the divisor, or a divisor with a small top
// limb and large lower ones.
func operands(r *rand.Rand) (a, b *big.Int) {
	b = nasty(r, 1+r.IntN(8))
	if b.Sign() == 0 {
		b.SetInt64(1 + r.Int64N(limb))
	}
	switch r.IntN(4) {
	case 0:
		a = nasty(r, r.IntN(17))
	case 1: // just below or above a multiple
		a = new(big.Int).Mul(b, nasty(r, 1+r.IntN(8)))
		a.Add(a, big.NewInt(r.Int64N(3)-1))
	case 2: // the same top limbs as the divisor, and smaller ones after them
		a = new(big.Int).Lsh(b, uint(24*r.IntN(9)))
		a.Sub(a, nasty(r, 1+r.IntN(9)))
	case 3:
		a = new(big.Int).Mul(new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(24*r.IntN(9))), big.NewInt(1)), b)
		a.Add(a, new(big.Int).Sub(b, big.NewInt(1)))
	}
	return a.Abs(a), b
}

// TestNum: for numbers of any size, the scripts compute what math/big does.
func TestNum(t *testing.T) {
	raced.Skip(t)
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	script := ""
	for _, name := range []string{"head.lua", "num.lua"} {
		text, err := os.ReadFile("../../weirredis/lua/" + name)
		if err != nil {
			t.Fatal(err)
		}
		script += string(text)
	}
	r := rand.New(rand.NewPCG(1, seeds.Seed()))
	// Knuth's own case, in limbs of 24 bits: a guess stays one too high to the end
	pairs := [][2]*big.Int{{hex("7fffff800000000000000000"), hex("800000000000000001")}, {hex("800000000000000000000003"), hex("200000000000000000000001")}}
	for range max(20_000, 20*(*walks)) {
		a, b := operands(r)
		pairs = append(pairs, [2]*big.Int{a, b})
	}
	high := 0
	for some := range slices.Chunk(pairs, 1000) {
		var args []string
		for _, p := range some {
			if guessedHigh(p[0], p[1]) {
				high++
			}
			args = append(args, limbsOf(p[0])+"/"+limbsOf(p[1]))
		}
		answers, err := client.Do(t.Context(), client.B().Eval().Script(script+calculator).Numkeys(0).Arg(args...).Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range some {
			var want []string
			for _, v := range computed(p[0], p[1]) {
				want = append(want, limbsOf(v))
			}
			if got := strings.Split(answers[i], ","); !slices.Equal(got, want) {
				t.Fatalf("%x and %x:\nwant %q\ngot  %q", p[0], p[1], want, got)
			}
		}
	}
	if high < 50 {
		t.Errorf("in %d divisions a guess was too high: that is not tried enough", high)
	}
}

func hex(s string) *big.Int {
	v, ok := new(big.Int).SetString(s, 16)
	if !ok {
		panic(s)
	}
	return v
}

// guessedHigh reports whether a quotient's digit of algorithm D is still one too high after the
// test with two limbs of the divisor: there a division of three limbs by two is larger than the
// whole one.
func guessedHigh(a, b *big.Int) bool {
	n := (b.BitLen() + 23) / 24
	if n < 3 || a.Cmp(b) < 0 {
		return false
	}
	scale := big.NewInt(limb / (new(big.Int).Rsh(b, uint(24*(n-1))).Int64() + 1))
	u, v := new(big.Int).Mul(a, scale), new(big.Int).Mul(b, scale)
	top := new(big.Int).Rsh(v, uint(24*(n-2)))
	for j := (u.BitLen()+23)/24 - n; j >= 0; j-- {
		part := new(big.Int).Rsh(u, uint(24*j))
		guess := new(big.Int).Quo(new(big.Int).Rsh(part, uint(24*(n-2))), top)
		digit := new(big.Int).Quo(part, v)
		if guess.Cmp(digit) > 0 && digit.Cmp(big.NewInt(limb)) < 0 {
			return true
		}
		u.Sub(u, new(big.Int).Lsh(digit.Mul(digit, v), uint(24*j)))
	}
	return false
}

// TestMuldiv: the remainder of a product of two numbers is exact, also beyond the range of a
// double, and a quotient that is too large for one is never rounded below it.
func TestMuldiv(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	head, err := os.ReadFile("../../weirredis/lua/head.lua")
	if err != nil {
		t.Fatal(err)
	}
	script := string(head) + `
local answers = {}
for i = 1, #ARGV, 3 do
  local q, r = muldiv(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  answers[#answers + 1] = string.format('%.0f %.0f', q, r)
end
return answers`
	r := rand.New(rand.NewPCG(2, seeds.Seed()))
	draw := func(bits int) int64 {
		switch bits = 1 + r.IntN(bits); r.IntN(3) {
		case 0:
			return 1<<bits - 1
		case 1:
			return 1 << (bits - 1)
		}
		return r.Int64N(1 << bits)
	}
	for range max(20, *walks/50) {
		var args []string
		var want [][3]int64
		for range 1000 {
			w := [3]int64{draw(53), draw(53), max(draw(51), 1)}
			want = append(want, w)
			for _, v := range w {
				args = append(args, strconv.FormatInt(v, 10))
			}
		}
		answers, err := client.Do(t.Context(), client.B().Eval().Script(script).Numkeys(0).Arg(args...).Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			q := new(big.Int).Mul(big.NewInt(w[0]), big.NewInt(w[1]))
			q, rest := q.QuoRem(q, big.NewInt(w[2]), new(big.Int))
			said, left, _ := strings.Cut(answers[i], " ")
			got, _ := new(big.Int).SetString(said, 10)
			if q.BitLen() > 53 && got.BitLen() > 53 {
				continue
			}
			if got.Cmp(q) != 0 || left != rest.String() {
				t.Fatalf("%d*%d/%d is %v and %v, not %s", w[0], w[1], w[2], q, rest, answers[i])
			}
		}
	}
}
