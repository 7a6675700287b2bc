package resp

import (
	"bytes"
	"fmt"
	"strings"
)

// A command is one that clients may send.
type command struct {
	name  string // in lower case
	arity int    // words, with the name; below 0: at least so many
	// the flags, and the position of the key, as COMMAND shows them
	flags     []string
	key       int
	summary   string
	anonymous bool                  // for clients that have not authenticated, too
	permitted bool                  // for users with the permission; for all clients where there are no users
	run       func(*conn, [][]byte) // nil for one that ends the connection
	throttles bool                  // CL.THROTTLE: calls of a pipeline are decided about together in a store
}

// find returns the command of a name in any case; nil for none.
func (f *Face) find(name []byte) *command {
	var lower [32]byte
	if len(name) > len(lower) {
		return nil
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return f.commands[string(lower[:len(name)])]
}

// answer answers a command. It reports false if the connection ends.
func (c *conn) answer(args [][]byte) bool {
	cmd := c.face.find(args[0])
	if cmd == nil || !cmd.throttles {
		c.flushStored()
	}
	switch {
	case cmd == nil && isHTTP(args[0]):
		return false // a web page or a proxy sends HTTP here: no line of it may run as a command
	case !c.session.known && (cmd == nil || !cmd.anonymous):
		c.reply.Error("NOAUTH Authentication required.")
		return true
	case cmd == nil:
		c.unknown(args)
		return true
	case cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		c.reply.Error("ERR wrong number of arguments for '" + cmd.name + "' command")
		return true
	case cmd.permitted && c.session.settings.users != nil && !c.session.settings.users.allow(c.session.user, cmd.name):
		c.reply.Error("NOPERM User " + visible([]byte(c.session.user)) + " has no permissions to run the '" + cmd.name + "' command")
		return true
	}
	c.batch.add(cmd)
	if cmd.run == nil {
		c.reply.Simple("OK")
		return false
	}
	cmd.run(c, args)
	return !c.session.ends
}

// isHTTP reports whether a word is the beginning of an HTTP request or of its field Host.
func isHTTP(word []byte) bool {
	return bytes.EqualFold(word, []byte("POST")) || bytes.EqualFold(word, []byte("Host:"))
}

// unknown answers an unknown command, as Redis does.
func (c *conn) unknown(args [][]byte) {
	c.batch.unknown++
	text := fmt.Sprintf("ERR unknown command '%s', with args beginning with: ", visible(args[0]))
	for _, a := range args[1:] {
		if len(text) > 200 {
			break
		}
		text += "'" + visible(a) + "' "
	}
	c.reply.Error(text)
}

// visible is a word of a client as an error line may repeat it.
func visible(word []byte) string { return printable(word, 128) }

// printable is a text of at most so many bytes, and without control characters.
func printable(word []byte, most int) string {
	if len(word) > most {
		word = word[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, string(word))
}
