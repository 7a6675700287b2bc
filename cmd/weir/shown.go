package main

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirflow/weir/internal/asciijson"
)

// longShown is how many bytes of a text from elsewhere are shown.
const longShown = 80

// shown returns a text that a client may have chosen so that it is safe in a terminal: control characters,
// invisible ones and those that change the direction of text are escaped, and what is long is cut.
func shown(text string) string {
	cut := ""
	if len(text) > longShown {
		text, cut = text[:longShown], "..."
		for len(text) > 0 && !utf8.ValidString(text[len(text)-1:]) && !utf8.RuneStart(text[len(text)-1]) { // not in the middle of a character
			text = text[:len(text)-1]
		}
		if r, size := utf8.DecodeLastRuneInString(text); r == utf8.RuneError && size == 1 {
			text = text[:len(text)-1]
		}
	}
	return escaped(text) + cut
}

// escaped is shown for a text whose length is known to be bounded.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || unicode.IsMark(r) || unicode.IsSpace(r) && r != ' ' {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// shownKey returns the parts of a key, separated by commas.
func shownKey(parts []string) string {
	all := make([]string, len(parts))
	for i, p := range parts {
		all[i] = shown(p)
	}
	return strings.Join(all, ",")
}

// printJSON prints a value as one line of JSON. It is in ASCII: texts in it may be from clients, and none of them can do
// anything to a terminal.
func printJSON(w io.Writer, v any) error {
	text, err := asciijson.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
