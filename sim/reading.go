package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reading is what a report says of the logs.
type Reading struct {
	Requests int64 // readable requests
	Unparsed int64 // unreadable lines
	First    int64 // Unix time of the first request, in nanoseconds
	Last     int64
	Samples  []BadLine   // the first unreadable lines
	Formats  []LogFormat // of the inputs
}

// request counts a request.
func (u *Reading) request(at int64) {
	if u.Requests == 0 {
		u.First = at
	}
	u.Requests++
	u.Last = at
}

// read takes over what was found when lines were read.
func (u *Reading) read(from *Reading) {
	u.Unparsed, u.Samples, u.Formats = from.Unparsed, from.Samples, from.Formats
}

// writeText writes the first lines of a report.
func (u *Reading) writeText(b *bytes.Buffer) {
	fmt.Fprintf(b, "requests  %d", u.Requests)
	if u.Requests > 0 {
		first, last := time.Unix(0, u.First).UTC(), time.Unix(0, u.Last).UTC()
		fmt.Fprintf(b, "   %s to %s (%v)", first.Format(time.RFC3339), last.Format(time.RFC3339), last.Sub(first))
	}
	b.WriteString("\n")
	if text := u.formats(); text != "" {
		fmt.Fprintf(b, "format    %s\n", text)
	}
}

// formats lists the formats of the logs, with their numbers if they are different.
func (u *Reading) formats() string {
	var names []string
	count := make(map[string]int)
	for _, f := range u.Formats {
		if count[f.Format]++; count[f.Format] == 1 {
			names = append(names, f.Format)
		}
	}
	if len(names) > 1 {
		for i, name := range names {
			names[i] = fmt.Sprintf("%s (%d)", name, count[name])
		}
	}
	return strings.Join(names, ", ")
}

// BadLine is an unreadable line.
type BadLine struct {
	Input string // its name
	Line  int64  // in its input, from 1
	Why   string
	Text  string // its start
	index int32  // of the input
}

// LogFormat says how a log was read.
type LogFormat struct {
	Input  string // its name
	Format string
	index  int32
}

const shownText = 80

// startOf returns the start of a line.
func startOf(line string) string {
	if len(line) > shownText {
		return line[:shownText] + "..."
	}
	return strings.Clone(line)
}

// add counts the lines of a batch.
func (u *Reading) add(in *inputFeed, b *batch) {
	if in.lines == 0 && b.format != nil {
		i, _ := slices.BinarySearchFunc(u.Formats, in.index, func(f LogFormat, index int32) int { return cmp.Compare(f.index, index) })
		u.Formats = slices.Insert(u.Formats, i, LogFormat{in.name, b.format.String(), in.index})
	}
	u.Unparsed += b.bad
	for _, line := range b.first {
		line.Input, line.Line, line.index = in.name, line.Line+in.lines, in.index
		i, _ := slices.BinarySearchFunc(u.Samples, line, func(a, b BadLine) int {
			return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.Line, b.Line))
		})
		u.Samples = slices.Insert(u.Samples, i, line)
		u.Samples = u.Samples[:min(len(u.Samples), showUnparsed)]
	}
}
