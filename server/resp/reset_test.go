package resp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// does sends a command, and compares the beginning of the reply: elements of an array without its
// length.
func (c *client) does(send, want string) {
	c.t.Helper()
	c.send(send + "\r\n")
	if got := c.reply(); !strings.HasPrefix(got, want) {
		c.t.Errorf("%s:\n%s, want\n%s", send, got, want)
	}
}

// reply reads a reply: a line, or the elements of an array.
func (c *client) reply() string {
	c.t.Helper()
	first := c.lines(1)
	n, array := 0, false
	if n, array = length(first); !array {
		return first
	}
	values := make([]string, n)
	for i := range values {
		if values[i] = c.lines(1); strings.HasPrefix(values[i], "$") {
			values[i] = c.lines(1)
		}
		values[i] = strings.TrimPrefix(values[i], ":")
	}
	return strings.Join(values, " ")
}

func length(head string) (n int, array bool) {
	digits, array := strings.CutPrefix(head, "*")
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n, array
}

// TestResetOfKeys: users with the permission, and no others, make a key of a limit or of CL.THROTTLE
// start over.
func TestResetOfKeys(t *testing.T) {
	f := serve(t, ", users: users.acl", someLimits)
	path := filepath.Join(filepath.Dir(f.policy.File().Path), "users.acl")
	if err := os.WriteFile(path, []byte("user app on >a\nuser operator on >b +weir.reset\nuser all on >c +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Tick()
	c := dial(t, f)
	c.does("AUTH app a", "+OK")
	c.does("WEIR.TAKE api 1 x COST 8", "allowed 1 limit 10 remaining 2")
	c.does("WEIR.TAKE api 1 y COST 8", "allowed 1 limit 10 remaining 2")
	c.does("CL.THROTTLE x 9 1 1000 8", "0 10 2")
	c.does("CL.THROTTLE y 9 1 1000 8", "0 10 2")
	c.does("WEIR.RESET api 1 x", "-NOPERM User app has no permissions to run the 'weir.reset' command")
	c.does("AUTH operator b", "+OK")
	c.does("WEIR.RESET api 1 x", "+OK")
	c.does("WEIR.RESET CL.THROTTLE 1 x", "+OK")
	c.does("WEIR.PEEK api 1 x", "allowed 1 limit 10 remaining 10")
	c.does("WEIR.PEEK api 1 y", "allowed 1 limit 10 remaining 2")
	c.does("CL.THROTTLE x 9 1 1000 0", "0 10 10")
	c.does("CL.THROTTLE y 9 1 1000 0", "0 10 2")
	c.does("AUTH all c", "+OK")
	c.does("WEIR.RESET api 1 y", "+OK")
	c.does("WEIR.PEEK api 1 y", "allowed 1 limit 10 remaining 10")
	c.does("WEIR.RESET apo 1 y", "-ERR limit: ")
	c.does("WEIR.RESET api 2 y", "-ERR write: WEIR.RESET LIMIT NUMPARTS")
	c.does("WEIR.RESET api y", "-ERR write: ")
	c.does("WEIR.RESET CL.THROTTLE 0", "-ERR write: ")
	dial(t, serve(t, "", someLimits)).does("WEIR.RESET api 1 x", "-NOPERM WEIR.RESET is for users with +weir.reset")
}
