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
