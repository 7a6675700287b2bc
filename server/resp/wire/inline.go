package wire

import "bytes"

// inline parses a command that a person typed, such as PING over telnet: words on a line. Words may be
// quoted, as in redis-cli.
func (r *Reader) inline(data []byte) (n int, err error) {
	r.args = r.args[:0]
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return 0, ErrIncomplete
	}
	line := bytes.TrimSuffix(data[:end], []byte{'\r'})
	for {
		line = bytes.TrimLeft(line, " \t\r\v\f\x00")
		if len(line) == 0 {
			return end + 1, nil
		}
		var word []byte
		var ok bool
		if word, line, ok = nextWord(line); !ok {
			return 0, &ProtocolError{"unbalanced quotes in request"}
		}
		if len(r.args) == r.bounds.Args {
			return 0, &ProtocolError{"too big inline request"}
		}
		r.args = append(r.args, word)
	}
}

// nextWord unquotes the first word of a line, in place. It reports false for quotes that do not end
// before a space or the end of the line.
func nextWord(line []byte) (word, rest []byte, ok bool) {
	to := 0 // a word is never longer than what was read of it
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && isSpace(c):
			return line[:to:to], line[i:], true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
			continue
		case quote != 0 && c == quote:
			if i+1 < len(line) && !isSpace(line[i+1]) {
				return nil, nil, false
			}
			quote = 0
			continue
		case quote == '"' && c == '\\' && i+3 < len(line) && line[i+1] == 'x' && isHex(line[i+2]) && isHex(line[i+3]):
			c = hex(line[i+2])<<4 | hex(line[i+3])
			i += 3
		case quote == '"' && c == '\\' && i+1 < len(line):
			i++
			c = unescape(line[i])
		case quote == '\'' && c == '\\' && i+1 < len(line) && line[i+1] == '\'':
			i++
			c = '\''
		}
		line[to] = c
		to++
	}
	return line[:to:to], nil, quote == 0
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0 }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func hex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}
