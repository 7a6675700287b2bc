package seeds

import "testing"

func TestSeed(t *testing.T) {
	t.Setenv("WEIR_SEED", "")
	if Seed() != Fixed || Text() != "1" {
		t.Error(Seed(), Text())
	}
	first, again, other := Of("a").Uint64(), Of("a").Uint64(), Of("b").Uint64()
	if first != again || first == other {
		t.Error("a name has numbers of its own, the same each time")
	}
	t.Setenv("WEIR_SEED", "77")
	if Seed() != 77 || Of("a").Uint64() == first {
		t.Error("$WEIR_SEED makes no difference")
	}
	for _, wrong := range []string{"0", "-1", "x", "9223372036854775808"} {
		t.Setenv("WEIR_SEED", wrong)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken for a seed", wrong)
				}
			}()
			Seed()
		}()
	}
}
