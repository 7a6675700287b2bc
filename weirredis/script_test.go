package weirredis

import (
	"strings"
	"testing"
)

// TestTimeLine: with a test's clock, each script differs in one line, the one that reads the time.
func TestTimeLine(t *testing.T) {
	plain, tested := open(t, Options{}).scripts, open(t, Options{ClockKey: "clock"}).scripts
	for name, of := range map[string]func(*scripts) *Script{
		"short": func(s *scripts) *Script { return s.of(short) },
		"fixed": func(s *scripts) *Script { return s.of(shortFixed) },
		"full":  func(s *scripts) *Script { return s.of(full) },
		"one":   func(s *scripts) *Script { return s.of(1 << kindBucket) },
		"nodes": (*scripts).nodes,
		"holds": (*scripts).concurrency,
		"named": (*scripts).named,
	} {
		a, b := strings.Split(of(plain).Source, "\n"), strings.Split(of(tested).Source, "\n")
		if len(a) != len(b) {
			t.Errorf("%s: %d lines and %d", name, len(a), len(b))
			continue
		}
		var differ []string
		for i := range a {
			if a[i] != b[i] {
				differ = append(differ, a[i])
			}
		}
		if len(differ) != 1 || differ[0]+"\n" != timeLine || strings.Count(of(plain).Source, "'TIME'") != 1 {
			t.Errorf("%s: these lines differ: %q", name, differ)
		}
	}
}
