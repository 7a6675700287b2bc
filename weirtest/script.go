package weirtest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/duration"
)

// A Script is a test of a limiter in virtual time: a new limiter or a policy, and calls at exact
// times with the expected results. DESIGN section 11 specifies the language; docs/scripts.md
// explains it.
type Script struct {
	Name  string
	Steps []Step
}

// A Step is one line of a script.
type Step struct {
	Line int
	Text string

	Kind   StepKind
	Name   string            // of the algorithm, or of the policy's file
	Fields map[string]string // of the limit or of set, or the named arguments of an operation

	At     time.Duration
	Op     string // take, peek, reserve, cancel, settle, wait, set, or an HTTP method in capitals
	Key    string
	Cost   int64
	Target string // of an HTTP request
	Expect []Expectation
}

// StepKind says what a line does.
type StepKind uint8

// The kinds of lines.
const (
	OpenLimit StepKind = iota
	OpenPolicy
	Operate
)

// An Expectation is one word after the arrow: a result, or a field with its value.
type Expectation struct{ Name, Value string }

// SyntaxError is the error for a line that is not valid.
type SyntaxError struct {
	Name string // of the script
	Line int
	Msg  string // what is wrong, and what to write instead
}

// Error has the form NAME:LINE: message.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Msg) }

const (
	maxLine  = 1 << 16 // bytes
	maxSteps = 1 << 20
)

// ParseScript parses a script. The error is a *SyntaxError, or the error of reading.
func ParseScript(name string, r io.Reader) (*Script, error) {
	s := &Script{Name: name}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		text := uncomment(lines.Text())
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(s.Steps) == maxSteps {
			return nil, &SyntaxError{name, n, fmt.Sprintf("a script has at most %d lines: split it", maxSteps)}
		}
		step, err := parseStep(text)
		if err != nil {
			return nil, &SyntaxError{name, n, err.Error()}
		}
		step.Line, step.Text = n, strings.TrimSpace(text)
		s.Steps = append(s.Steps, step)
	}
	if err := lines.Err(); err != nil {
		if err == bufio.ErrTooLong {
			return nil, &SyntaxError{name, n, fmt.Sprintf("a line is longer than %d bytes", maxLine)}
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// indexUnquoted returns the first index at which is reports true, outside of quoted values
// (name="VALUE"); the length of the line if there is none.
func indexUnquoted(line string, is func(i int) bool) int {
	quoted := false
	for i := range len(line) {
		switch {
		case quoted:
			quoted = line[i] != '"'
		case line[i] == '"' && i > 0 && line[i-1] == '=':
			quoted = true
		case is(i):
			return i
		}
	}
	return len(line)
}

// uncomment cuts a line at a # at its beginning or after a space.
func uncomment(line string) string {
	return line[:indexUnquoted(line, func(i int) bool {
		return line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t')
	})]
}

// splitWords is strings.Fields for a text with quoted values, which stay whole.
func splitWords(text string) (words []string) {
	for {
		text = strings.TrimLeft(text, " \t\r\v\f")
		if text == "" {
			return words
		}
		end := indexUnquoted(text, func(i int) bool { return strings.IndexByte(" \t\r\v\f", text[i]) >= 0 })
		words, text = append(words, text[:end]), text[end:]
	}
}

// unquote removes the quotes of a value.
func unquote(name, value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	inner, ok := strings.CutSuffix(value[1:], `"`)
	if !ok || strings.Contains(inner, `"`) {
		return "", fmt.Errorf("the quoted value of %s ends nowhere, or before its last letter: write %s=\"TEXT\"", name, name)
	}
	return inner, nil
}

func parseStep(text string) (Step, error) {
	arrow := indexUnquoted(text, func(i int) bool { return strings.HasPrefix(text[i:], "->") })
	call := text[:arrow]
	expected, checks := strings.CutPrefix(text[arrow:], "->")
	words := splitWords(call)
	if len(words) == 0 {
		return Step{}, fmt.Errorf("nothing before the arrow: begin with limit, policy or at")
	}
	switch words[0] {
	case "limit":
		return parseOpen(OpenLimit, words, checks, "limit ALGORITHM name=value...")
	case "policy":
		return parseOpen(OpenPolicy, words, checks, "policy FILE")
	case "at":
		return parseOperation(words[1:], expected, checks)
	}
	return Step{}, fmt.Errorf("%q begins no line: begin with limit, policy or at", words[0])
}

func parseOpen(kind StepKind, words []string, checks bool, form string) (Step, error) {
	if checks {
		return Step{}, fmt.Errorf("a %s line expects nothing: take the arrow out", words[0])
	}
	if len(words) < 2 || kind == OpenPolicy && len(words) > 2 {
		return Step{}, fmt.Errorf("write %s", form)
	}
	fields, err := parseFields(words[2:])
	return Step{Kind: kind, Name: words[1], Fields: fields}, err
}

// parseFields parses name=value words.
func parseFields(words []string) (map[string]string, error) {
	fields := map[string]string{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form name=value", w)
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		var err error
		if fields[name], err = unquote(name, value); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// operations are the operations on a limiter: how many positional arguments are required and
// allowed, and which named arguments exist.
var operations = map[string]struct {
	least, most int
	names       string
	form        string
}{
	"take":    {1, 2, "", "take KEY [N]"},
	"peek":    {1, 2, "", "peek KEY [N]"},
	"reserve": {2, 2, "max", "reserve KEY N [max=D]"},
	"cancel":  {1, 1, "", "cancel KEY"},
	"settle":  {2, 2, "", "settle KEY N"},
	"wait":    {2, 2, "deadline cancel", "wait KEY N [deadline=T] [cancel=T]"},
	"set":     {0, 0, "*", "set FIELD=VALUE..."},
}

func parseOperation(words []string, expected string, checks bool) (s Step, err error) {
	s.Kind = Operate
	if len(words) < 2 {
		return s, fmt.Errorf("write at TIME OPERATION")
	}
	if s.At, err = parseTime(words[0]); err != nil {
		return s, err
	}
	s.Op = words[1]
	words = words[2:]
	plain := 0
	for plain < len(words) && !strings.Contains(words[plain], "=") {
		plain++
	}
	op, known := operations[s.Op]
	switch {
	case !known && s.Op == strings.ToUpper(s.Op):
		return parseRequest(s, words, expected, checks)
	case !known:
		return s, fmt.Errorf("there is no operation %q: write take, peek, reserve, cancel, settle, wait, set, or a request like GET /path", s.Op)
	case plain < op.least || plain > op.most || s.Op == "set" && len(words) == 0:
		return s, fmt.Errorf("write at TIME %s", op.form)
	}
	if s.Fields, err = parseFields(words[plain:]); err != nil {
		return s, err
	}
	for name := range s.Fields {
		if op.names != "*" && !strings.Contains(" "+op.names+" ", " "+name+" ") {
			return s, fmt.Errorf("%s has no %s: write at TIME %s", s.Op, name, op.form)
		}
	}
	s.Cost = 1
	if plain > 0 {
		s.Key = words[0]
	}
	if plain > 1 {
		if s.Cost, err = strconv.ParseInt(words[1], 10, 64); err != nil {
			return s, fmt.Errorf("%q is not a whole number of 64 bits", words[1])
		}
	}
	s.Expect, err = parseExpectations(expected, checks)
	return s, err
}

// parseRequest parses METHOD TARGET [name=value...].
func parseRequest(s Step, words []string, expected string, checks bool) (Step, error) {
	if len(words) == 0 || !strings.HasPrefix(words[0], "/") {
		return s, fmt.Errorf("write at TIME %s /PATH [from=ADDRESS] [host=NAME] [header.NAME=VALUE] [cookie.NAME=VALUE] [length=N] [takes=D] [status=N]", s.Op)
	}
	s.Target = words[0]
	var err error
	if s.Fields, err = parseFields(words[1:]); err != nil {
		return s, err
	}
	for name := range s.Fields {
		source, what, dotted := strings.Cut(name, ".")
		if !slices.Contains([]string{"from", "host", "length", "takes", "status"}, name) && (!dotted || what == "" || source != "header" && source != "cookie") {
			return s, fmt.Errorf("a request has no %q: write from, host, length, takes, status, header.NAME or cookie.NAME", name)
		}
	}
	s.Expect, err = parseExpectations(expected, checks)
	return s, err
}

func parseExpectations(text string, checks bool) ([]Expectation, error) {
	words := strings.Fields(text)
	if checks && len(words) == 0 {
		return nil, fmt.Errorf("nothing after the arrow: say what is expected, or take it out")
	}
	var all []Expectation
	for i := 0; i < len(words); i++ {
		name, value, isField := strings.Cut(words[i], "=")
		switch {
		case isField && strings.Contains(" delay remaining retry reset limit by ", " "+name+" "):
			all = append(all, Expectation{name, value})
		case isField:
			return nil, fmt.Errorf("nothing is called %q: expect delay, remaining, retry, reset, limit or by", name)
		case name == "error":
			if i+1 == len(words) {
				return nil, fmt.Errorf("which error? write error deadline, canceled, limited, cost or reservation")
			}
			i++
			all = append(all, Expectation{"error", words[i]})
		case name == "allow" || name == "deny" || name == "ok" || isStatus(name):
			all = append(all, Expectation{name, ""})
		default:
			return nil, fmt.Errorf("nothing results in %q: expect allow, deny, ok, delay=D, error WORD, or the status of a request", name)
		}
	}
	return all, nil
}

func isStatus(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 100 && n <= 999
}

// parseTime parses a time of the script's clock: a duration since the start, or a date and time,
// which counts from 1970.
func parseTime(s string) (time.Duration, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		d := time.Duration(at.Unix())*time.Second + time.Duration(at.Nanosecond())
		if at.Unix() < -maxYears || at.Unix() > maxYears {
			return 0, fmt.Errorf("%q is too far from 1970", s)
		}
		return d, nil
	}
	d, err := duration.Parse(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: write it like 0s, 100ms, 1h30m, 1d or 2026-03-29T00:59:59Z", s)
	}
	return d, nil
}

// maxYears is the largest distance of a date from 1970, in seconds: 290 years.
const maxYears = 290 * 365 * 24 * 60 * 60
