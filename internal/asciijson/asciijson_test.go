package asciijson

import (
	"encoding/json"
	"testing"
)

// TestEscape: what is written is ASCII without control characters, and means the same.
func TestEscape(t *testing.T) {
	for _, text := range []string{"", "plain <b>", "\u009b2J", "a\u202eb", "\x7f", "\x1b[2J", "日本", "😀 and 👩‍👩‍👧", "\ufffd", "\u2028\ufeff"} {
		out, err := Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range out {
			if b < ' ' || b >= 0x7f {
				t.Errorf("%q has the byte %#x", out, b)
			}
		}
		var got map[string]string
		if err := json.Unmarshal(out, &got); err != nil || got[text] != text || len(got) != 1 {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	if text := []byte(`{"a": 1}`); &Escape(text)[0] != &text[0] {
		t.Error("a text in ASCII was copied")
	}
	if _, err := Marshal(make(chan int)); err == nil {
		t.Error("a channel has no JSON")
	}
}
