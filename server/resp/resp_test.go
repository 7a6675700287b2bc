package resp

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policyfile"
)

// serve serves a policy with these settings of listen.resp, and more of the policy.
func serve(t testing.TB, settings, more string) *Face {
	t.Helper()
	folder := t.TempDir()
	// the hash of: secret
	users := "# who may use it\nuser default off\nuser app on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* +@all\n"
	if err := os.WriteFile(filepath.Join(folder, "users.acl"), []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := policyfile.Parse(filepath.Join(folder, "policy.yaml"), []byte("listen: { resp: { address: \"127.0.0.1:0\""+settings+" } }\n"+more))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Check(file) {
		t.Fatal(p)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := active.New(t.Context(), file, active.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	opened, err := open(t.Context(), face.Host{Policy: p, Log: log, Metrics: prometheus.NewRegistry(), Listen: func(a string) (net.Listener, error) { return net.Listen("tcp", a) }})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- opened.Serve() }()
	t.Cleanup(func() {
		opened.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return opened.(*Face)
}

// A client is a raw connection.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, f *Face) *client {
	t.Helper()
	c, err := net.Dial("tcp", f.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{c, t, bufio.NewReader(c)}
}

// send writes lines as inline commands.
func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// lines reads n lines, joined by spaces.
func (c *client) lines(n int) string {
	c.t.Helper()
	var all []string
	for range n {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("after %q: %v", all, err)
		}
		all = append(all, strings.TrimSuffix(line, "\r\n"))
	}
	return strings.Join(all, " ")
}

// ended reports whether the server has ended the connection.
func (c *client) ended() bool {
	_, err := c.r.ReadByte()
	return err == io.EOF
}

// TestCommands: what clients send when they connect, and their mistakes, after which the connection
// lives on.
func TestCommands(t *testing.T) {
	c := dial(t, serve(t, "", ""))
	for _, x := range []struct{ send, want string }{
		{"PING", "+PONG"}, {"ping hello", "$5 hello"}, {"ECHO x", "$1 x"}, {"SELECT 0", "+OK"}, {"SELECT 1", "-ERR DB index is out of range"},
		{"CL.THROTTLE user123 15 30 60", "*5 :0 :16 :15 :-1 :2"}, {"cl.throttle user123 15 30 60 0", "*5 :0 :16 :15 :-1 :2"},
		{"CL.THROTTLE user123 15 30 60 17", "*5 :1 :16 :15 :-1 :2"},
		{"CL.THROTTLE user123 15 30 60 16", "*5 :1 :16 :15 :2 :2"},
		{"CL.THROTTLE k 1 2", "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"},
		{"CL.THROTTLE k a 2 3", `-Cell error: Couldn't parse as integer: "a"`},
		{"CL.THROTTLE k 1 0 3", "-Cell error: Zero rates are not supported"}, {"CL.THROTTLE k 1 1 0", "-Cell error: Zero rates are not supported"},
		{"CL.THROTTLE k 1 9000000000000000000 1", "-Cell error: Zero rates are not supported"},
		{"CL.THROTTLE k 1 -1 1", "-Cell error: count per period and period must be positive"},
		{"CL.THROTTLE k 1 1 1 -1", "-Cell error: quantity must not be negative"},
		{"CL.THROTTLE k 9223372036854775807 1 1", "-Cell error: the period, or max_burst+1 calls at this rate, take more than 36 years"},
		{"CL.THROTTLE k -2 1 1", "*5 :1 :-1 :0 :-1 :0"}, {"CL.THROTTLE k 1 1 1 9223372036854775807", "*5 :1 :2 :2 :-1 :0"},
		{"GET x", "-ERR unknown command 'GET', with args beginning with: 'x' "}, {"ECHO", "-ERR wrong number of arguments for 'echo' command"},
		{"CLIENT SETNAME me", "+OK"}, {"CLIENT GETNAME", "$2 me"}, {"CLIENT SETINFO LIB-NAME x", "+OK"}, {"CLIENT WHAT", "-ERR unknown subcommand 'WHAT'. Try CLIENT HELP."},
		{"CONFIG GET save", "*2 $4 save $0 "}, {"CONFIG SET save x", "-ERR the policy file says how this server is configured: CONFIG GET alone is served"},
		{"COMMAND COUNT", ":23"}, {"COMMAND INFO nothing", "*1 *-1"}, {"COMMAND DOCS nothing", "*0"},
		{"AUTH x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"},
		{"AUTH default x", "+OK"}, {"AUTH app x", "-WRONGPASS invalid username-password pair or user is disabled."}, {"HELLO 2 AUTH default x", "*14 $6 server $5 redis"},
		{"HELLO 4", "-NOPROTO unsupported protocol version"}, {"CLUSTER INFO", "-ERR This instance has cluster support disabled"},
		{"HELLO 3", "%7 $6 server $5 redis $7 version $5 7.2.0 $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0"},
		{"COMMAND INFO nothing", "*1 _"}, {"CONFIG GET save", "%1 $4 save $0 "}, {"RESET", "+RESET"}, {"CLIENT GETNAME", "$-1"}, {"QUIT", "+OK"},
	} {
		c.send(x.send + "\r\n")
		if got := c.lines(1 + strings.Count(x.want, " $") + strings.Count(x.want, " :")); !strings.HasPrefix(x.want, got) {
			t.Errorf("%s:\n%s, want\n%s", x.send, got, x.want)
		}
		for c.r.Buffered() > 0 { // the rest of texts
			c.lines(1)
		}
	}
	if !c.ended() {
		t.Error("QUIT did not end the connection")
	}
}

// TestProtocolErrors: what cannot be understood ends the connection, after an error, and HTTP without
// one.
func TestProtocolErrors(t *testing.T) {
	f := serve(t, "", "")
	for text, want := range map[string]string{
		"*1\r\n!4\r\n":      "-ERR Protocol error: expected '$', got '!'",
		"PING\r\n*x\r\n":    "+PONG -ERR Protocol error: invalid multibulk length",
		"*1\r\n$70000\r\n":  "-ERR Protocol error: invalid bulk length",
		"POST / HTTP/1.1\n": "",
	} {
		c := dial(t, f)
		if c.send(text); want != "" {
			if got := c.lines(1 + strings.Count(want, " -")); got != want {
				t.Errorf("%q: %s", text, got)
			}
		}
		if !c.ended() {
			t.Errorf("%q did not end the connection", text)
		}
	}
}

// TestPipelines: commands that come together are answered in order, however many there are.
func TestPipelines(t *testing.T) {
	c := dial(t, serve(t, "", ""))
	const n = 20000
	go io.WriteString(c, strings.Repeat("CL.THROTTLE p 9999 1 100\r\nPING\r\n", n/2))
	limited := 0
	for range n / 2 {
		got := c.lines(7)
		if strings.HasPrefix(got, "*5 :1") {
			limited++
		}
		if !strings.HasSuffix(got, "+PONG") {
			t.Fatal(got)
		}
	}
	if limited != 0 {
		t.Errorf("%d limited", limited)
	}
	if c.send("CL.THROTTLE p 9999 1 100\r\n"); !strings.HasPrefix(c.lines(6), "*5 :1 :10000 :0 ") {
		t.Error("a call beyond the burst is admitted")
	}
}

// TestPasswords: without a password nothing is carried out; guesses have a bound.
func TestPasswords(t *testing.T) {
	f := serve(t, ", users: users.acl", "")
	c := dial(t, f)
	for _, x := range []struct{ send, want string }{
		{"CL.THROTTLE a 1 1 1", "-NOAUTH Authentication required."}, {"NOTHING", "-NOAUTH Authentication required."},
		{"AUTH secret", "-WRONGPASS invalid username-password pair or user is disabled."},
		{"AUTH app wrong", "-WRONGPASS invalid username-password pair or user is disabled."},
		{"AUTH app secret", "+OK"}, {"PING", "+PONG"}, {"RESET", "+RESET"}, {"PING", "-NOAUTH Authentication required."},
	} {
		if c.send(x.send + "\r\n"); c.lines(1) != x.want {
			t.Errorf("%s: want %s", x.send, x.want)
		}
	}
	if c.send("HELLO 3 AUTH app secret SETNAME x\r\n"); c.lines(1) != "%7" {
		t.Error("HELLO with AUTH")
	}
	ended := false
	for range 10 { // 5 of a connection, 20 of an address and a user
		c := dial(t, f)
		for range maxGuesses {
			c.send("AUTH app guess\r\n")
			if ended = strings.HasPrefix(c.lines(1), "-ERR too many wrong passwords"); ended {
				break
			}
		}
		if !c.ended() {
			t.Fatal("a client that guesses stays connected")
		}
	}
	if !ended {
		t.Error("an address guesses without a bound")
	}
	other := dial(t, f)
	if other.send("AUTH other secret\r\n"); !strings.HasPrefix(other.lines(1), "-WRONGPASS") {
		t.Error("wrong passwords of one user count for another")
	}
	long := dial(t, f)
	if long.send("*2\r\n$4\r\nAUTH\r\n$9000\r\n"); long.lines(1) != "-ERR Protocol error: invalid bulk length" {
		t.Error("clients without a password send as much as they like")
	}
}

// TestUsersFile: mistakes in a file with users are errors that repeat no password.
func TestUsersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	for text, want := range map[string]string{
		"":                                "there is no user who is on",
		"alice secretword":                "line 1 is not of the form",
		"user a on >x\nuser a on >secret": "line 2: there is a second line",
		"user a on #12":                   "a # must be followed by",
		"user a on nopass":                "nopass admits everybody",
		"user a on #e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": "the hash of an empty text",
		"user a on >password":           "is a sample",
		"user a on":                     "the user has no password",
		"user a on >x -@all secretword": "users differ by nothing else",
		"user a on >x":                  "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readUsers(path)
		if fmt.Sprint(err) != "<nil>" && want == "" || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestShutdown: idle clients are disconnected, and a command in flight is answered.
func TestShutdown(t *testing.T) {
	f := serve(t, "", "")
	idle, busy := dial(t, f), dial(t, f)
	idle.send("PING\r\n")
	busy.send("PING\r\n")
	if idle.lines(1) != "+PONG" || busy.lines(1) != "+PONG" {
		t.Fatal("no replies")
	}
	f.Leave(true)
	for range 20 {
		if busy.send("PING\r\n"); busy.lines(1) != "+PONG" {
			t.Fatal("a busy client is disconnected")
		}
	}
	if !idle.ended() {
		t.Error("an idle client stays")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil || f.Draining() != 0 || !busy.ended() {
		t.Errorf("%v, %d connections", err, f.Draining())
	}
}

// TestStoreUnavailable: without the store, its fallback decides within its deadline, for a whole
// pipeline at once.
func TestStoreUnavailable(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0") // it accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	for fallback, want := range map[string]string{"allow": "*5 :0 :6 :", "deny": "*5 :1 :6 :", "local": "*5 :0 :6 :"} {
		f := serve(t, ", store: shared", "stores: { shared: { url: \"redis://"+dead.Addr().String()+"\", on_failure: "+fallback+" } }\n")
		c := dial(t, f)
		for range 2 {
			c.send(strings.Repeat("CL.THROTTLE k 5 1000000 1\r\nCL.THROTTLE other 5 500000 1\r\n", 4) + "PING\r\n")
			for range 8 {
				if got := c.lines(6); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %s", fallback, got)
				}
			}
			if c.lines(1) != "+PONG" {
				t.Error("out of order")
			}
		}
		const sets = 1500 // more than package failover has records of limits
		var all strings.Builder
		for n := range sets {
			fmt.Fprintf(&all, "CL.THROTTLE many%d %d 1 1\r\n", n, n)
		}
		go io.WriteString(c, all.String())
		for range sets {
			if got := c.lines(1); got != "*5" {
				t.Fatalf("%s: %s", fallback, got)
			}
			c.lines(5)
		}
	}
}

const someLimits = `
limits:
  api: { key: header.user, token_bucket: { rate: 1/h, burst: 10 } }
  day: { token_bucket: { rate: 1/h, burst: 12 } }
`

// TestLimits: the limits of the policy over the Redis protocol: several all or nothing, reservations,
// and mistakes.
func TestLimits(t *testing.T) {
	c := dial(t, serve(t, "", someLimits))
	ask := func(text string) string {
		t.Helper()
		c.send(text + "\r\n")
		return c.reply()
	}
	is := c.does
	is("WEIR.TAKE api 1 alice", "allowed 1 limit 10 remaining 9 retry_after_ms 0 reset_after_ms 3600000 delay_ms 0 refused_by ")
	is("WEIR.PEEK api 1 alice COST 10", "allowed 0 limit 10 remaining 9 retry_after_ms 3")
	is("WEIR.PEEK api 1 bob COST 10", "allowed 1 limit 10 remaining 10")
	is("WEIR.TAKE day 0 COST 11", "allowed 1 limit 12 remaining 1")
	is("WEIR.TAKE api 1 alice COST 2 AND day 0 COST 2", "allowed 0")
	is("WEIR.PEEK api 1 alice COST 9", "allowed 1 limit 10 remaining 9")
	is("WEIR.TAKE api 1 dan COST 4 AND api 1 dan COST 7", "allowed 0 limit 10 remaining 10 retry_after_ms -1")
	is("WEIR.TAKE api 1 dan COST 4 AND api 1 dan COST 5", "allowed 1 limit 10 remaining 1 ")
	reserved := strings.Fields(ask("WEIR.RESERVE api 1 carol COST 8 KEEP 60000"))
	is("WEIR.PEEK api 1 carol COST 3", "allowed 0 limit 10 remaining 2")
	id := reserved[len(reserved)-1]
	is("WEIR.SETTLE "+id+" 3", "+OK")
	is("WEIR.PEEK api 1 carol COST 1", "allowed 1 limit 10 remaining 7")
	is("WEIR.SETTLE "+id+" 3", "-ERR there is no such reservation")
	reserved = strings.Fields(ask("WEIR.RESERVE api 1 carol COST 7"))
	is("WEIR.CANCEL "+reserved[len(reserved)-1], "+OK")
	is("WEIR.PEEK api 1 carol COST 1", "allowed 1 limit 10 remaining 7")
	is("WEIR.RESERVE api 1 carol COST 8", "allowed 0 limit 10 remaining 7")
	is("WEIR.TAKE apo 1 x", "-ERR limit: ")
	is("WEIR.TAKE api 2 x y", "-ERR key: ")
	is("WEIR.TAKE api 1 x COST -1", "-ERR cost: ")
	is("WEIR.TAKE api x", "-ERR the number of parts")
	is("WEIR.TAKE api 9 x", "-ERR the number of parts")
	is("WEIR.TAKE api 1 x COST y", "-ERR COST is not a whole number")
	is("WEIR.TAKE api 1 x KEEP 5", "-ERR syntax error at 'KEEP'")
	is("WEIR.TAKE api 1 x AND", "-ERR a limit is missing: write LIMIT NUMPARTS")
	is("WEIR.RESERVE api 1 x KEEP 4000000", "-ERR KEEP is not 1 to 3600000 milliseconds: write LIMIT NUMPARTS PART... [COST n] [PLAN plan] [AND LIMIT NUMPARTS PART...] [WITHIN ms] [KEEP ms]")
	is("WEIR.RESERVE api 1 x WITHIN -2", "-ERR WITHIN is not -1 to 3600000 milliseconds")
	is("CL.THROTTLE api 99 1 1", "0 100 99 -1 1")
	is("CL.THROTTLE day 99 1 1", "0 100 99 -1 1")
	is("WEIR.PEEK day 0 COST 1", "allowed 1 limit 12 remaining 1")
}

// TestEmptyPasswordAtTheDoor: an empty password is wrong, whatever hashes a user has.
func TestEmptyPasswordAtTheDoor(t *testing.T) {
	f := serve(t, ", users: users.acl", "")
	old := f.settings.Load()
	empty := &users{byName: map[string]user{"app": {passwords: []password{sha256.Sum256(nil)}}}, path: old.users.path, version: old.users.version}
	f.settings.Store(&settings{old.store, empty})
	c := dial(t, f)
	if c.send("*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$0\r\n\r\n"); !strings.HasPrefix(c.lines(1), "-WRONGPASS") {
		t.Error("an empty password is accepted")
	}
}
