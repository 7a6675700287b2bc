package policyfile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// tightLine matches a line like burst:20. tightPort matches what follows the colon in an address.
var (
	tightLine = regexp.MustCompile(`^( *(?:- +)?)([a-z][a-z0-9_]*):([^\s:].*?)\s*$`)
	tightPort = regexp.MustCompile(`^[0-9]+$`)
)

// checkColons refuses a key whose colon has no space behind it. In a block, YAML reads key:client.ip
// as one text. Inside braces, YAML 1.2 reads it as a key without a value, and the parser does not.
func checkColons(text string) error {
	lines := strings.Split(text, "\n")
	var words map[string]bool
	for _, t := range lexer.Tokenize(text) {
		switch t.Type {
		case token.MappingValueType:
			if tight(t) {
				return spaceMissing(t.Position.Line, t.Prev.Position.Column, t.Prev.Value, t.Next.Value)
			}
		case token.StringType:
			// a plain text over several lines is one token
			count := strings.Count(strings.TrimSpace(t.Origin), "\n")
			for n := t.Position.Line; n <= min(t.Position.Line+count, len(lines)); n++ {
				found := tightLine.FindStringSubmatch(lines[n-1])
				if found == nil || n == t.Position.Line && t.Position.Column != len(found[1])+1 {
					continue
				}
				if strings.Contains(found[1], "-") && tightPort.MatchString(found[3]) {
					continue // an item of a list that is HOST:PORT
				}
				if strings.HasPrefix(found[3], "//") {
					continue // a URL
				}
				if words == nil {
					words = schemaWords()
				}
				if words[found[2]] {
					return spaceMissing(n, len(found[1])+1, found[2], found[3])
				}
			}
		}
	}
	return nil
}

// tight reports whether a value follows a colon without a space. After a key in quotes, YAML takes
// that.
func tight(colon *token.Token) bool {
	key, value := colon.Prev, colon.Next
	if key == nil || value == nil || key.Type == token.DoubleQuoteType || key.Type == token.SingleQuoteType {
		return false
	}
	switch value.Type {
	case token.CollectEntryType, token.MappingEndType, token.SequenceEndType, token.CommentType:
		return false
	}
	return value.Position.Line == colon.Position.Line && value.Position.Column == colon.Position.Column+1
}

func spaceMissing(line, col int, key, value string) error {
	return &mistake{line, col, fmt.Sprintf("there is no space after the colon of %s", key), key + ": " + value}
}

// schemaWords returns all keys that the schema knows anywhere.
func schemaWords() map[string]bool {
	words := map[string]bool{}
	var collect func(v any)
	collect = func(v any) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		properties, _ := m["properties"].(map[string]any)
		for name := range properties {
			words[name] = true
		}
		for _, below := range m {
			collect(below)
		}
	}
	var raw any
	_ = json.Unmarshal(Schema(), &raw) // the schema is part of the program, and a test reads it
	collect(raw)
	return words
}
