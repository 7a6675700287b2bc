package resp

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestNamedLimits: clients create limits with any algorithm, use them as those of the policy, change
// and delete them, and reach no limit of the policy by it.
func TestNamedLimits(t *testing.T) {
	f := serve(t, "", someLimits)
	c := dial(t, f)
	c.does("WEIR.TAKE @mail 1 alice", "-NOLIMIT there is no limit @mail: WEIR.INIT creates it")
	c.does("WEIR.INIT @mail token_bucket rate=1/h burst=5", ":1")
	c.does("WEIR.INIT @mail token_bucket rate=1/h burst=5", ":0")
	c.does("WEIR.TAKE @mail 1 alice COST 4", "allowed 1 limit 5 remaining 1")
	c.does("WEIR.TAKE @mail 1 bob", "allowed 1 limit 5 remaining 4")
	c.does("WEIR.INIT @mail token_bucket rate=1/h burst=10", ":0")
	c.does("WEIR.PEEK @mail 1 alice", "allowed 1 limit 10 remaining 6") // what was used stays used
	dial(t, f).does("WEIR.PEEK @mail 1 alice COST 7", "allowed 0 limit 10 remaining 6")
	c.send("WEIR.TAKE @mail 1 alice COST 7\r\n")
	if got := c.reply(); !strings.HasSuffix(got, "refused_by @mail") {
		t.Error(got)
	}
	c.does("WEIR.INIT @all sliding_log limit=2 window=1h PARTS 0", ":1")
	c.does("WEIR.TAKE @all 0", "allowed 1 limit 2 remaining 1")
	c.does("WEIR.TAKE @all 0 COST 2 AND @mail 1 bob", "allowed 0")
	c.does("WEIR.PEEK @mail 1 bob", "allowed 1 limit 10 remaining 9")
	c.send("WEIR.RESERVE @mail 1 bob COST 9\r\n")
	words := strings.Fields(c.reply())
	c.does("WEIR.PEEK @mail 1 bob", "allowed 0 limit 10 remaining 0")
	c.does("WEIR.SETTLE "+words[len(words)-1]+" 1", "+OK")
	c.does("WEIR.PEEK @mail 1 bob", "allowed 1 limit 10 remaining 8")
	c.does("WEIR.RESET @mail 1 bob", "+OK")
	c.does("WEIR.PEEK @mail 1 bob", "allowed 1 limit 10 remaining 10")
	// a named limit has the name of one of the policy, and is another
	c.does("WEIR.INIT @api fixed_window limit=3 window=1h", ":1")
	c.does("WEIR.TAKE @api 1 x COST 3", "allowed 1 limit 3 remaining 0")
	c.does("WEIR.PEEK api 1 x", "allowed 1 limit 10 remaining 10")
	c.does("WEIR.DEL @api", ":1")
	c.does("WEIR.DEL @api", ":0")
	c.does("WEIR.PEEK @api 1 x", "-NOLIMIT")
	c.does("WEIR.PEEK api 1 x", "allowed 1 limit 10 remaining 10")
	for send, want := range map[string]string{
		"WEIR.INIT mail token_bucket rate=1/h":                  "-ERR the name of a named limit is @ and",
		"WEIR.INIT @ token_bucket rate=1/h":                     "-ERR the name of a named limit is @ and",
		"WEIR.INIT @a,b token_bucket rate=1/h burst=1":          "-ERR \"a,b\" is not a name for a limit: begin with a small letter",
		"WEIR.INIT @A token_bucket rate=1/h burst=1":            "-ERR \"A\" is not a name for a limit: begin with a small letter",
		"WEIR.INIT @x token_bucket rate=1/h burst=0":            "-ERR ",
		"WEIR.INIT @x bucket rate=1/h":                          "-ERR there is no algorithm \"bucket\"",
		"WEIR.INIT @x token_bucket rate=1":                      "-ERR rate: ",
		"WEIR.INIT @x token_bucket rate=1/h rate=2/h":           "-ERR 'rate=2/h' is not of the form FIELD=VALUE, or is there twice",
		"WEIR.INIT @x token_bucket rate":                        "-ERR 'rate' is not of the form",
		"WEIR.INIT @x token_bucket rate=1/h burst=-1":           "-ERR ",
		"WEIR.INIT @x concurrency limit=3":                      "-ERR a concurrency is entered and left",
		"WEIR.INIT @x sliding_log limit=1000000 window=1h":      "-ERR one key of this limit takes too much memory",
		"WEIR.INIT @x token_bucket rate=1/h burst=1 PARTS 9":    "-ERR PARTS is not 0 to 8",
		"WEIR.INIT @x token_bucket rate=1/h burst=1 PARTS -1":   "-ERR PARTS is not 0 to 8",
		"WEIR.INIT @mail token_bucket rate=1/h burst=1 PARTS 2": "-ERR the keys of this limit have 1 parts: WEIR.DEL it first",
		"WEIR.TAKE @mail 2 a b":                                 "-ERR the keys of @mail have 1 parts",
		"WEIR.TAKE @mail 1 a AND api 1 x":                       "-ERR a named limit and a limit of the policy cannot be charged together",
		"WEIR.TAKE api 1 x AND @mail 1 a":                       "-ERR a named limit and a limit of the policy cannot be charged together",
		"WEIR.DEL api":                                          "-ERR the names of named limits begin with @",
		"WEIR.RESET api 1 x":                                    "-NOPERM",
	} {
		c.does(send, want)
	}
	long := "@" + strings.Repeat("a", maxNamedName)
	c.does("WEIR.INIT "+long+" token_bucket rate=1/h burst=1", ":1")
	c.does("WEIR.INIT "+long+"a token_bucket rate=1/h burst=1", "-ERR the name of a named limit is @ and 1 to 100 letters")
	c.does("WEIR.PEEK @mail 1 alice", "allowed 1 limit 10 remaining 6") // mistakes changed nothing
}

// TestNamedLimitsOfUsers: with users, a permission is needed to create and delete limits, and one user
// leaves room for others.
func TestNamedLimitsOfUsers(t *testing.T) {
	f := serve(t, ", users: users.acl", "")
	path := filepath.Join(filepath.Dir(f.policy.File().Path), "users.acl")
	if err := os.WriteFile(path, []byte("user app on >a\nuser maker on >b +weir.init\nuser other on >c +weir.init +weir.del\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Tick()
	c := dial(t, f)
	c.does("AUTH app a", "+OK")
	c.does("WEIR.INIT @x token_bucket rate=1/h burst=1", "-NOPERM User app has no permissions to run the 'weir.init' command")
	c.does("AUTH maker b", "+OK")
	for i := range maxNamedOfUser {
		c.does(fmt.Sprintf("WEIR.INIT @x%d token_bucket rate=1/h burst=1", i), ":1")
	}
	c.does("WEIR.INIT @more token_bucket rate=1/h burst=1", "-ERR this user has 32 named limits")
	c.does("WEIR.DEL @x0", "-NOPERM")
	c.does("AUTH other c", "+OK")
	c.does("WEIR.INIT @more token_bucket rate=1/h burst=1", ":1")
	c.does("WEIR.DEL @x0", ":1")
	c.does("AUTH app a", "+OK")
	c.does("WEIR.TAKE @more 1 x", "allowed 1")
}

// TestNamedLimitsOfOthers: any user with +weir.init could change a limit that another user had created,
// to a rate that leaves nothing used, and back.
func TestNamedLimitsOfOthers(t *testing.T) {
	f := serve(t, ", users: users.acl", "")
	path := filepath.Join(filepath.Dir(f.policy.File().Path), "users.acl")
	if err := os.WriteFile(path, []byte("user maker on >b +weir.init\nuser other on >c +weir.init\nuser root on >d +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Tick()
	c := dial(t, f)
	c.does("AUTH maker b", "+OK")
	c.does("WEIR.INIT @x token_bucket rate=1/h burst=2", ":1")
	c.does("WEIR.TAKE @x 1 a COST 2", "allowed 1 limit 2 remaining 0")
	c.does("AUTH other c", "+OK")
	c.does("WEIR.INIT @x token_bucket rate=1/h burst=2", ":0") // the same: changes nothing
	c.does("WEIR.INIT @x token_bucket rate=1000000/s burst=2", "-NOPERM this limit was created by another user")
	c.does("WEIR.INIT @x sliding_log limit=2 window=1h", "-NOPERM")
	c.does("WEIR.PEEK @x 1 a", "allowed 0 limit 2 remaining 0")
	c.does("AUTH maker b", "+OK")
	c.does("WEIR.INIT @x token_bucket rate=1/h burst=3", ":0")
	c.does("AUTH root d", "+OK")
	c.does("WEIR.INIT @x fixed_window limit=4 window=1h", ":0")
	c.does("WEIR.PEEK @x 1 a", "allowed 1 limit 4 remaining 2")
	c.does("AUTH maker b", "+OK")
	c.does("WEIR.INIT @x fixed_window limit=5 window=1h", ":0") // it is still the maker's
	c.does("WEIR.PEEK @x 1 a", "allowed 1 limit 5 remaining 3")
	c.does("WEIR.INIT @x sliding_log limit=5 window=1h", ":0") // another size of the states
	c.does("WEIR.PEEK @x 1 a", "allowed 1 limit 5 remaining 5")
}

// TestNamedLimitsExpire: a limit that no client uses is deleted when all of its keys are full again, and
// not before.
func TestNamedLimitsExpire(t *testing.T) {
	n, err := newNamedLimits()
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	now := time.Unix(1e9, 0)
	n.now = func() time.Time { return now }
	for name, l := range map[string]weir.Limit{"short": weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, "day": weir.FixedWindow{Limit: 5, Window: 24 * time.Hour}} {
		if created, err := n.init(policy.Limit{Name: name, Limit: l}, maker{all: true}); !created || err != nil {
			t.Fatal(err)
		}
	}
	there := func(want string) {
		t.Helper()
		if err := n.expire(); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, name := range []string{"day", "short"} {
			if n.current.Load().byName[name] != nil {
				got += name + " "
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	now = now.Add(namedIdle)
	there("day short ")
	n.use("@short")
	now = now.Add(namedIdle)
	there("day short ")
	now = now.Add(2)
	there("day ")
	now = now.Add(46*time.Hour - 2)
	there("day ")
	now = now.Add(time.Nanosecond)
	there("")
	for i := range maxNamed {
		if _, err := n.init(policy.Limit{Name: fmt.Sprint("x", i), Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}}, maker{all: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.init(policy.Limit{Name: "more", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}}, maker{all: true}); err == nil {
		t.Error("named limits have no bound")
	}
}

// TestNamedLimitsInAStore: with a store, named limits decide by its fallback while it is unavailable,
// any number of them one after the other, and a reload keeps them.
func TestNamedLimitsInAStore(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0") // it accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	stores := "stores: { shared: { url: \"redis://" + dead.Addr().String() + "\", on_failure: local } }\n"
	f := serve(t, ", store: shared", stores)
	c := dial(t, f)
	for i := range 1100 { // more than package failover has records of limits
		c.does(fmt.Sprintf("WEIR.INIT @x%d token_bucket rate=1000000/s burst=5", i), ":1")
		c.does(fmt.Sprintf("WEIR.TAKE @x%d 1 a", i), "allowed 1 limit 5")
		c.does(fmt.Sprintf("WEIR.DEL @x%d", i), ":1")
	}
	c.does("WEIR.INIT @x token_bucket rate=1/h burst=5", ":1")
	c.does("WEIR.TAKE @x 1 a", "allowed 0 limit 5") // a key begins an outage empty
	reload(t, f, "", stores)
	c.does("WEIR.TAKE @x 1 a COST 2", "allowed 1 limit 5 remaining 3")
	reload(t, f, ", max_connections: 7", stores)
	c.does("WEIR.TAKE @x 1 a", "allowed 1 limit 5 remaining 2")
}
