package sim

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestRealLogs compares replays of real logs with counts made in another way. testdata has the
// first lines of the logs; the full logs can be named in WEIR_LOGS, separated by colons.
func TestRealLogs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	if more := os.Getenv("WEIR_LOGS"); more != "" {
		files = append(files, filepath.SplitList(more)...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []weir.TokenBucket{tenAMinute, {Rate: weir.Rate{N: 7, Per: time.Minute}, Burst: 2}, {Rate: weir.PerHour(20), Burst: 1}} {
			r, decisions := run1(t, Options{Policy: perClient(limit)}, string(text))
			answers := countAnotherWay(t, string(text), limit)
			denied := int64(strings.Count(answers, "deny"))
			requests := int64(strings.Count(answers, "\n"))
			if r.Requests != requests || r.Unparsed != 0 || r.Limited != denied || r.Allowed != requests-denied || denied == 0 {
				t.Errorf("%s, %v: %d requests, %d allowed, %d limited, %d unparsed; counted %d and %d denied",
					file, limit.Rate, r.Requests, r.Allowed, r.Limited, r.Unparsed, requests, denied)
			}
			if got := regexp.MustCompile(`(?m)^\d+\t(\w+)\t.*$`).ReplaceAllString(decisions, "$1"); got != answers {
				t.Errorf("%s, %v: the lines that are denied are others", file, limit.Rate)
			}
		}
	}
}

// countAnotherWay decides on each line of a log by the bound alone: a request is admitted if no
// interval that ends with it, and begins with an admitted request of the same client, would hold
// more than burst + rate * its length. It shares no code with the engine or the parser.
func countAnotherWay(t *testing.T, text string, l weir.TokenBucket) string {
	field := regexp.MustCompile(`^(\S+) .*?\[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]`)
	type request struct {
		client string
		second int64
		line   int
	}
	var all []request
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		m := field.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("line %d: %q", len(all)+1, lines.Text())
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, request{m[1], at.Unix(), len(all)})
	}
	answers := make([]string, len(all))
	slices.SortStableFunc(all, func(a, b request) int { return int(a.second - b.second) })
	admitted := map[string][]int64{}
	for _, r := range all {
		past, answer := admitted[r.client], "allow"
		for i, from := range past {
			inside := int64(len(past) - i + 1)
			if (inside-l.Burst)*int64(l.Rate.Per/time.Second) > l.Rate.N*(r.second-from) {
				answer = "deny"
			}
		}
		if answer == "allow" {
			admitted[r.client] = append(past, r.second)
		}
		answers[r.line] = answer
	}
	return strings.Join(answers, "\n") + "\n"
}
