package nearest

import "testing"

func TestTo(t *testing.T) {
	known := []string{"burst", "rate", "initial", "upstream", "limits"}
	for word, want := range map[string]string{
		"brust": "burst", "bursts": "burst", "rat": "rate", "upstrem": "upstream", "limit": "limits", "initail": "initial",
		"": "", "x": "", "colour": "", "queue": "",
	} {
		if got := To(word, known); got != want {
			t.Errorf("To(%q) = %q, want %q", word, got, want)
		}
	}
	if got := To("rate", nil); got != "" {
		t.Errorf("among nothing: %q", got)
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"10": "10/s", "10rps": "10/s", "10 rps": "10/s", "600rpm": "600/m", "10r/s": "10/s", "30r/m": "30/m", "10 per second": "10/s", "10/sec": "10/s",
		"5 requests per minute": "5/m", "100req/h": "100/h", "1000/day": "1000/d", "7 qps": "7/s", "50Hz": "50/s", "2ps": "2/s",
		"": "", "fast": "", "1.5/s": "", "0": "", "10 apples": "", "-1/s": "", "10/fortnight": "",
	} {
		if got := Rate(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
