package weir_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

func TestRateText(t *testing.T) {
	for _, c := range []struct {
		text string
		rate weir.Rate
		back string // the result of String, if it is not text
	}{
		{"100/s", weir.PerSecond(100), ""},
		{"6/m", weir.PerMinute(6), ""},
		{"5000/h", weir.PerHour(5000), ""},
		{"1/d", weir.PerDay(1), ""},
		{"20/100ms", weir.Rate{N: 20, Per: 100 * time.Millisecond}, ""},
		{"1/w", weir.PerDay(0), "1/7d"},
		{"2/2w", weir.PerDay(0), "2/14d"},
		{"1/1s", weir.PerSecond(1), "1/s"},
		{"1/60s", weir.PerMinute(1), "1/m"},
		{"3/1h30m", weir.Rate{N: 3, Per: 90 * time.Minute}, "3/90m"},
		{"1/1.5s", weir.Rate{N: 1, Per: 1500 * time.Millisecond}, "1/1500ms"},
		{"1/us", weir.Rate{N: 1, Per: time.Microsecond}, ""},
		{"1/µs", weir.Rate{N: 1, Per: time.Microsecond}, "1/us"},
		{"9223372036854775807/ns", weir.Rate{N: math.MaxInt64, Per: 1}, ""},
		{"1/36525d", weir.Rate{N: 1, Per: 36525 * 24 * time.Hour}, ""},
		{"unlimited", weir.Unlimited, ""},
	} {
		switch c.text {
		case "1/w":
			c.rate = weir.Rate{N: 1, Per: 7 * 24 * time.Hour}
		case "2/2w":
			c.rate = weir.Rate{N: 2, Per: 14 * 24 * time.Hour}
		}
		got, err := weir.ParseRate(c.text)
		if err != nil || got != c.rate {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", c.text, got, err, c.rate)
			continue
		}
		back := c.back
		if back == "" {
			back = c.text
		}
		if got.String() != back {
			t.Errorf("ParseRate(%q).String() = %q, want %q", c.text, got.String(), back)
		}
	}
}

func TestRateErrorsSayWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "as in 100/s",
		"100":                          "as in 100/s",
		"/s":                           "not a whole number",
		"0/s":                          "must be at least 1",
		"-5/s":                         "must be at least 1",
		"+5/s":                         "not a whole number",
		"0.5/s":                        "1/2s, not 0.5/s",
		"1e3/s":                        "not a whole number",
		" 1/s":                         "not a whole number",
		"1 /s":                         "not a whole number",
		"1/ s":                         "not a duration",
		"1/":                           "no duration after the slash",
		"1/x":                          "not a duration",
		"1/-1s":                        "has a sign",
		"1/+s":                         "has a sign",
		"1/0s":                         "at least 1ns",
		"1/0.1ns":                      "at least 1ns",
		"1/s/s":                        "not a duration",
		"1/36526d":                     "at most 100 years",
		"1/99999999999999999999d":      "whole number of days",
		"1/1.5d":                       "whole number of days",
		"1/9223372036854775808ns":      "not a duration",
		"9223372036854775808/s":        "largest number is 9223372036854775807",
		strings.Repeat("9", 100):       "too long",
		"1/" + strings.Repeat("1", 70): "too long",
		"Unlimited":                    "as in 100/s",
	} {
		r, err := weir.ParseRate(text)
		if err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", text, r)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "weir: rate ") {
			t.Errorf("ParseRate(%q): %v\nwant a weir: rate error with %q", text, err, want)
		}
	}
}

func TestRateInJSON(t *testing.T) {
	var v struct{ Rate weir.Rate }
	if err := json.Unmarshal([]byte(`{"Rate":"20/100ms"}`), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil || string(text) != `{"Rate":"20/100ms"}` {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"Rate":"0/s"}`), &v); err == nil || v.Rate.N != 20 {
		t.Errorf("a bad rate: %v, and %v is left", err, v.Rate)
	}
	for _, r := range []weir.Rate{{}, {N: 1}, {N: 1, Per: -1}, {N: 1, Per: math.MaxInt64}} {
		if text, err := json.Marshal(r); err == nil {
			t.Errorf("%+v was written as %s", r, text)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"100/s", "6/m", "20/100ms", "1/1h30m", "unlimited", "0/s", "1/1.5d", "9223372036854775807/ns", "1/µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := weir.ParseRate(s)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := weir.ParseRate(r.String())
		if err != nil || again != r {
			t.Errorf("%q is read as %+v, written as %q and read back as %+v, %v", s, r, r, again, err)
		}
		if r != weir.Unlimited && (r.N < 1 || r.Per < 1) {
			t.Errorf("%q is read as %+v", s, r)
		}
	})
}
