package nginx

import (
	"fmt"
	"strings"
)

// kind is the kind of a token.
type kind uint8

const (
	word kind = iota
	semicolon
	opens
	closes
	eof
)

// A token is a word, or a mark that ends a directive or a block.
type token struct {
	kind kind
	text string
	pos  Position
}

// lexer splits a file into tokens as nginx does. A word ends at white space, a semicolon or a {. A
// word that begins with a quote ends at the next such quote. A } ends a block, and a # begins a
// comment, only where a word could begin.
type lexer struct {
	text string
	at   int
	pos  Position // the position of the next byte
	last Position // the position of the last token
}

// step consumes one byte.
func (l *lexer) step() byte {
	c := l.text[l.at]
	l.at++
	l.pos.Col++
	if c == '\n' {
		l.pos.Line, l.pos.Col = l.pos.Line+1, 1
	}
	return c
}

func (l *lexer) more() bool { return l.at < len(l.text) }

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func ends(c byte) bool { return blank(c) || c == ';' || c == '{' }

// next returns the next token.
func (l *lexer) next() (token, error) {
	for l.more() {
		switch c := l.text[l.at]; {
		case blank(c):
			l.step()
		case c == '#':
			for l.more() && l.text[l.at] != '\n' {
				l.step()
			}
		default:
			return l.token(c)
		}
	}
	l.last = l.pos
	return token{kind: eof, pos: l.pos}, nil
}

func (l *lexer) token(c byte) (token, error) {
	t := token{pos: l.pos, text: string(c)}
	l.last = l.pos
	switch c {
	case ';', '{', '}':
		t.kind = map[byte]kind{';': semicolon, '{': opens, '}': closes}[c]
		l.step()
		return t, nil
	case '"', '\'':
		return l.quoted(t)
	}
	return l.plain(t)
}

// plain reads a word without quotes. A { directly after a $ belongs to the word.
func (l *lexer) plain(t token) (token, error) {
	var b strings.Builder
	dollar := false
	for l.more() {
		c := l.text[l.at]
		if ends(c) && (c != '{' || !dollar) {
			t.text = b.String()
			return t, nil
		}
		dollar = c == '$'
		l.escaped(&b)
	}
	return t, &Error{t.pos, fmt.Sprintf("the file ends in the middle of a directive, at %q", clip(b.String())), "end it with a ;"}
}

// quoted reads a word in quotes. White space, a mark or a ) must follow it.
func (l *lexer) quoted(t token) (token, error) {
	quote := l.step()
	var b strings.Builder
	for l.more() {
		if l.text[l.at] != quote {
			l.escaped(&b)
			continue
		}
		l.step()
		if l.more() && !ends(l.text[l.at]) && l.text[l.at] != ')' {
			return t, &Error{l.pos, fmt.Sprintf("unexpected %q after a quote", l.text[l.at]), "put a space after the closing quote, or quote the whole word"}
		}
		t.text = b.String()
		return t, nil
	}
	return t, &Error{t.pos, "the quote that begins here does not end", fmt.Sprintf("add the %c that is missing", quote)}
}

// escaped reads one character, or an escape. An escape that nginx does not know keeps its
// backslash.
func (l *lexer) escaped(b *strings.Builder) {
	c := l.step()
	if c != '\\' || !l.more() {
		b.WriteByte(c)
		return
	}
	switch c = l.step(); c {
	case '"', '\'', '\\':
	case 't':
		c = '\t'
	case 'r':
		c = '\r'
	case 'n':
		c = '\n'
	default:
		b.WriteByte('\\')
	}
	b.WriteByte(c)
}

// skipLua skips a block of Lua. Its braces are balanced, except in strings and comments.
func (l *lexer) skipLua(from Position) error {
	for depth := 1; l.more(); {
		switch c := l.step(); c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return nil
			}
		case '"', '\'':
			for l.more() && l.text[l.at] != c && l.text[l.at] != '\n' {
				if l.step() == '\\' && l.more() {
					l.step()
				}
			}
			if l.more() {
				l.step()
			}
		case '-':
			for strings.HasPrefix(l.text[l.at:], "-") && l.more() && l.text[l.at] != '\n' {
				for l.more() && l.text[l.at] != '\n' {
					l.step()
				}
			}
		}
	}
	return &Error{from, "the block of Lua that begins here does not end", "add the } that is missing"}
}

// clip shortens a text for a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
