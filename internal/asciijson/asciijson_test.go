package asciijson

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// TestEscape: whatever is in a text, its JSON is ASCII without control characters, and reads back as the same text.
func TestEscape(t *testing.T) {
	texts := []string{"", "plain, <b> & \"quoted\"", "\x1b[31m\x00\x7f", "\u009b31m", "\u202e\u2066", "ä中🌍\U0010ffff", "\ufeff\u00ad"}
	text, err := Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		t.Errorf("%q has a character that is not printable ASCII at %d", text, i)
	}
	var back []string
	if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(back, texts) {
		t.Errorf("%q %v", back, err)
	}
	if got := Escape([]byte("a\xffb")); string(got) != `a\ufffdb` {
		t.Errorf("%q", got)
	}
	same := []byte(`{"a":1}`)
	if got := Escape(same); &got[0] != &same[0] {
		t.Error("a text without anything to escape is copied")
	}
}

// TestTextsInALog: a line of a log with texts of a client is ASCII.
func TestTextsInALog(t *testing.T) {
	var line strings.Builder
	slog.New(slog.NewJSONHandler(&line, nil)).Info("decision", slog.Any("key", Texts{"\u009b31m", "\u202e"}))
	if text := line.String(); !strings.Contains(text, `"key":["\u009b31m","\u202e"]`) {
		t.Error(text)
	}
}
