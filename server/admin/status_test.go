package admin

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestErrorsAreBounded: the text of an error is valid UTF-8 of bounded length.
func TestErrorsAreBounded(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""}, {errors.New("refused"), "refused"}, {errors.New("a\xffb"), "a?b"},
		{errors.New(strings.Repeat("x", 600)), strings.Repeat("x", 600)}, {errors.New(strings.Repeat("x", 601)), strings.Repeat("x", 600) + "..."},
		{errors.New("x" + strings.Repeat("\u00e4", 400)), "x" + strings.Repeat("\u00e4", 299) + "..."},
	} {
		if got := errorText(c.err); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
