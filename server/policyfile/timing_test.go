package policyfile

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// timings compares how long two kinds of inputs take, as dudect does: measured in random order, without the
// slowest ones, by Welch's t-test. Beyond 4.5, the two differ.
func timings(r *rand.Rand, n int, inputs [2][]string, run func(string)) (t float64, mean [2]float64) {
	var took [2][]float64
	for range n {
		kind := r.IntN(2)
		input := inputs[kind][r.IntN(len(inputs[kind]))]
		began := time.Now()
		for range 8 { // of one reading of the clock
			run(input)
		}
		took[kind] = append(took[kind], float64(time.Since(began))/8)
	}
	// both are cut at one time, as what an interruption adds has nothing to do with the input
	all := slices.Concat(took[0], took[1])
	slices.Sort(all)
	cut := all[len(all)*9/10]
	var variance, count [2]float64
	for kind, times := range took {
		times = slices.DeleteFunc(times, func(d float64) bool { return d > cut })
		for _, d := range times {
			mean[kind] += d / float64(len(times))
		}
		for _, d := range times {
			variance[kind] += (d - mean[kind]) * (d - mean[kind]) / float64(len(times)-1)
		}
		count[kind] = float64(len(times))
	}
	return (mean[0] - mean[1]) / math.Sqrt(variance[0]/count[0]+variance[1]/count[1]), mean
}

// TestTimingOfGuesses: how long a guess takes says nothing about how much of it is right. A lookup that
// compares byte by byte is found by the same measurement.
func TestTimingOfGuesses(t *testing.T) {
	n := 20_000
	if text := os.Getenv("WEIR_TIMINGS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	r := seeds.Of(t.Name())
	text := func() string {
		b := make([]byte, 43)
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		return "weir_" + string(b)
	}
	k := &APIKeys{secret: []byte(hashSecret), byHash: map[KeyHash]apiKey{}}
	var valid []string
	for range 1000 {
		key := text()
		valid = append(valid, key)
		k.byHash[HashAPIKey(k.secret, key)] = apiKey{}
	}
	var inputs [2][]string // nearly right, and wrong from the first byte on
	for range 1000 {
		other := text() // as many different texts of both kinds: a processor remembers some of what it has seen
		inputs[0] = append(inputs[0], valid[0][:len(other)-4]+other[len(other)-4:])
		inputs[1] = append(inputs[1], other)
	}
	compared := 0 // so that nothing is optimised away
	leaky := func(guess string) {
		for i := 0; i < len(guess) && guess[i] == valid[0][i]; i++ {
			compared++
		}
	}
	if stat, mean := timings(r, n, inputs, leaky); stat < 4.5 {
		t.Errorf("the measurement does not find a comparison byte by byte: t = %.1f, %.1f and %.1f ns", stat, mean[0], mean[1])
	}
	known, mean := timings(r, n, [2][]string{valid, inputs[1]}, func(guess string) { k.Find(guess) })
	t.Logf("valid keys beside unknown ones, which the response tells apart anyway: t = %.2f: %.1f and %.1f ns", known, mean[0], mean[1])
	// one measurement of several may be beyond the bound by chance, or for what else the machine does
	beyond := 0
	for range 5 {
		stat, mean := timings(r, n, inputs, func(guess string) { k.Find(guess) })
		t.Logf("t = %.2f: %.1f and %.1f ns", stat, mean[0], mean[1])
		if math.Abs(stat) < 4.5 {
			break
		}
		beyond++
	}
	if beyond == 5 {
		t.Error("a guess that is nearly right takes another time than one that is wrong")
	}
}
