package policyfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// explain returns what is wrong with a text that is not YAML, and how to fix it, if the parser's
// own message leaves that open.
func explain(data string, at *token.Position, message string) *mistake {
	lines := strings.Split(data, "\n")
	for i, line := range lines {
		if indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(indent, "\t") && strings.TrimSpace(line) != "" {
			return &mistake{i + 1, 1, "the line is indented with a tab", "indent it with spaces: YAML takes no tabs there"}
		}
	}
	if open := openBracket(data); open != nil {
		return &mistake{open.Position.Line, open.Position.Column, fmt.Sprintf("this %s is not closed", open.Value), fmt.Sprintf("close it with %s", closing(open.Value))}
	}
	if key, first, ok := strings.Cut(message, " already defined at ["); ok {
		line, _, _ := strings.Cut(first, ":")
		return &mistake{at.Line, at.Column, fmt.Sprintf("%s is there twice, first in line %s", strings.TrimPrefix(key, "mapping key "), line), "take one of them out"}
	}
	if at.Line < 1 || at.Line > len(lines) {
		return &mistake{at.Line, at.Column, message, ""}
	}
	if line := lines[at.Line-1]; strings.Count(line, ": ") > 1 && !strings.ContainsAny(line, "{\"'") {
		return &mistake{at.Line, at.Column, "there are two keys in one line", "put the second one on the next line, indented; or write { KEY: VALUE }; or quote a text that has a colon"}
	}
	if fix := realign(lines, at.Line); fix != "" {
		return &mistake{at.Line, at.Column, "the indentation of this line fits none of the lines above it", fix}
	}
	return &mistake{at.Line, at.Column, message, "check the indentation and the quotes of this line and the one above it"}
}

// openBracket returns the innermost { or [ that is never closed, or nil.
func openBracket(data string) *token.Token {
	var open []*token.Token
	for _, t := range lexer.Tokenize(data) {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(len(open)-1, 0)]
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[len(open)-1]
}

func closing(bracket string) string {
	if bracket == "[" {
		return "]"
	}
	return "}"
}

// realign returns how to indent a line whose indentation fits no open block, or "" if it fits.
func realign(lines []string, number int) string {
	indentOf := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	var open []int // the columns of the open blocks that the line could belong to
	last := ""
	for _, line := range lines[:number-1] {
		content := strings.TrimSpace(line)
		if content == "" || content[0] == '#' {
			continue
		}
		last = content
		at := indentOf(line)
		for len(open) > 0 && open[len(open)-1] > at {
			open = open[:len(open)-1]
		}
		if !slices.Contains(open, at) {
			open = append(open, at)
		}
		// the item's own map begins after the dash
		if rest, ok := strings.CutPrefix(content, "- "); ok {
			if inner := at + len(content) - len(strings.TrimLeft(rest, " ")); !slices.Contains(open, inner) {
				open = append(open, inner)
			}
		}
	}
	at := indentOf(lines[number-1])
	// a new block may begin anywhere
	if len(open) == 0 || slices.Contains(open, at) || strings.HasSuffix(last, ":") && at > open[len(open)-1] {
		return ""
	}
	columns := strconv.Itoa(open[0])
	for i, column := range open[1:] {
		separator := ", "
		if i == len(open)-2 {
			separator = " or "
		}
		columns += separator + strconv.Itoa(column)
	}
	return fmt.Sprintf("indent it by %s spaces, not %d: all keys of one map begin in the same column", columns, at)
}
