package resp

import (
	"bytes"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/weirflow/weir/server/resp/wire"
)

// A session is what a client has set on its connection.
type session struct {
	settings *settings // those in force when the last commands were read
	known    bool      // it has authenticated, or need not
	user     string    // empty where clients need not authenticate
	password password  // that the user authenticated with
	name     string    // of CLIENT SETNAME
	library  string
	version  string
	since    time.Time
	asked    time.Time // when it became unknown: it has handshakeTimeout to authenticate
	guesses  int       // wrong passwords
	ends     bool
}

// redisVersion is what HELLO and INFO report: clients choose by it which commands of the connection
// they send.
const redisVersion = "7.2.0"

// reset sets the session as of a client that has just connected.
func (c *conn) reset() {
	s := c.face.settings.Load()
	c.session = session{settings: s, since: c.session.since, asked: time.Now(), guesses: c.session.guesses}
	c.reply.Three = false
	c.admit()
}

// follow makes the session obey the settings of the policy that is active now. A client that they do
// not admit any more has to authenticate again.
func (c *conn) follow() {
	s := c.face.settings.Load()
	if s == c.session.settings {
		return
	}
	c.session.settings, c.session.asked = s, time.Now()
	c.admit()
}

// admit applies the users of the settings to the session.
func (c *conn) admit() {
	x := &c.session
	x.known = x.settings.users == nil || x.settings.users.keep(x.user, x.password)
	if !x.known {
		x.user, x.password = "", password{}
	}
	c.reader.Bound(beforeAuth)
	if x.known {
		c.reader.Bound(fullBounds)
	}
	c.setDeadline()
}

func (c *conn) ping(args [][]byte) {
	switch len(args) {
	case 1:
		c.reply.Simple("PONG")
	case 2:
		c.reply.Bulk(args[1])
	default:
		c.reply.Error("ERR wrong number of arguments for 'ping' command")
	}
}

func (c *conn) echo(args [][]byte) { c.reply.Bulk(args[1]) }

func (c *conn) resetCommand([][]byte) {
	c.reset()
	c.reply.Simple("RESET")
}

// auth is AUTH [user] password.
func (c *conn) auth(args [][]byte) {
	if len(args) > 3 {
		c.reply.Error("ERR syntax error")
		return
	}
	user, secret := []byte(defaultUser), args[1]
	if len(args) == 3 {
		user, secret = args[1], args[2]
	}
	if len(args) == 2 && c.session.settings.users == nil {
		c.reply.Error(noPassword)
		return
	}
	failure, ends := c.authenticate(user, secret)
	if c.session.ends = ends; failure != "" {
		c.reply.Error(failure)
		return
	}
	c.reply.Simple("OK")
}

// hello is HELLO [protocol [AUTH user password] [SETNAME name]].
func (c *conn) hello(args [][]byte) {
	three := c.reply.Three
	if len(args) > 1 {
		n, ok := wire.ParseInt(args[1])
		switch {
		case !ok:
			c.reply.Error("ERR Protocol version is not an integer or out of range")
			return
		case n != 2 && n != 3:
			c.reply.Error("NOPROTO unsupported protocol version")
			return
		}
		three = n == 3
	}
	name := c.session.name
	for rest := args[min(2, len(args)):]; len(rest) > 0; {
		switch word := strings.ToLower(string(rest[0])); {
		case word == "auth" && len(rest) >= 3:
			failure, ends := c.authenticate(rest[1], rest[2])
			if c.session.ends = ends; failure != "" {
				c.reply.Error(failure)
				return
			}
			rest = rest[3:]
		case word == "setname" && len(rest) >= 2:
			if !isClientName(rest[1]) {
				c.reply.Error(badName)
				return
			}
			name, rest = string(rest[1]), rest[2:]
		default:
			c.reply.Error("ERR Syntax error in HELLO option '" + visible(rest[0]) + "'")
			return
		}
	}
	if !c.session.known {
		c.reply.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.session.name, c.reply.Three = name, three
	r := &c.reply
	r.Map(7)
	r.Text("server")
	r.Text("redis")
	r.Text("version")
	r.Text(redisVersion)
	r.Text("proto")
	if three {
		r.Int(3)
	} else {
		r.Int(2)
	}
	r.Text("id")
	r.Int(c.id)
	r.Text("mode")
	r.Text("standalone")
	r.Text("role")
	r.Text("master")
	r.Text("modules")
	r.Array(0)
}

func (c *conn) selectCommand(args [][]byte) {
	switch n, ok := wire.ParseInt(args[1]); {
	case !ok:
		c.reply.Error("ERR value is not an integer or out of range")
	case n != 0:
		c.reply.Error("ERR DB index is out of range")
	default:
		c.reply.Simple("OK")
	}
}

const (
	badName = "ERR Client names cannot contain spaces, newlines or special characters."
	maxName = 256 // bytes of what a client says of itself
)

func isClientName(name []byte) bool {
	return len(name) <= maxName && !bytes.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}

// client is CLIENT and its subcommands.
func (c *conn) client(args [][]byte) {
	word := strings.ToLower(string(args[1]))
	words := map[string]int{"id": 2, "getname": 2, "info": 2, "list": 2, "setname": 3, "setinfo": 4, "no-evict": 3, "no-touch": 3, "reply": 3, "tracking": -3}
	arity, ok := words[word]
	switch {
	case !ok:
		c.reply.Error("ERR unknown subcommand '" + visible(args[1]) + "'. Try CLIENT HELP.")
	case arity > 0 && arity != len(args) || len(args) < -arity:
		c.reply.Error("ERR wrong number of arguments for 'client|" + word + "' command")
	default:
		c.clientAbout(word, args)
	}
}

func (c *conn) clientAbout(word string, args [][]byte) {
	switch word {
	case "id":
		c.reply.Int(c.id)
	case "getname":
		if c.session.name == "" {
			c.reply.Null()
			return
		}
		c.reply.Text(c.session.name)
	case "info", "list": // about this client alone: a client may not see the others
		c.reply.Verbatim(c.describe())
	case "setname":
		if !isClientName(args[2]) {
			c.reply.Error(badName)
			return
		}
		c.session.name = string(args[2])
		c.reply.Simple("OK")
	case "setinfo":
		c.setInfo(strings.ToLower(string(args[2])), args[3])
	case "no-evict", "no-touch":
		c.reply.Simple("OK") // there is nothing to evict
	case "reply":
		if strings.EqualFold(string(args[2]), "on") {
			c.reply.Simple("OK")
			return
		}
		c.reply.Error("ERR every command is replied to here")
	case "tracking":
		if strings.EqualFold(string(args[2]), "off") {
			c.reply.Simple("OK")
			return
		}
		c.reply.Error("ERR there is nothing to track: limits are not cached by clients")
	}
}

func (c *conn) setInfo(what string, value []byte) {
	switch {
	case what != "lib-name" && what != "lib-ver":
		c.reply.Error("ERR Unrecognized option '" + visible([]byte(what)) + "'") //nolint:misspell // Redis' words
	case !isClientName(value):
		c.reply.Error("ERR " + what + " cannot contain spaces, newlines or special characters.")
	case what == "lib-name":
		c.session.library = string(value)
		c.reply.Simple("OK")
	default:
		c.session.version = string(value)
		c.reply.Simple("OK")
	}
}

func (c *conn) describe() string {
	proto := 2
	if c.reply.Three {
		proto = 3
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=0 flags=N db=0 sub=0 psub=0 multi=-1 cmd=client user=%s lib-name=%s lib-ver=%s resp=%d\n",
		c.id, c.raw.RemoteAddr(), c.raw.LocalAddr(), c.session.name, int(time.Since(c.session.since).Seconds()), defaultUser, c.session.library, c.session.version, proto)
}

// config is CONFIG GET pattern...: what tools read before they begin.
func (c *conn) config(args [][]byte) {
	if !strings.EqualFold(string(args[1]), "get") {
		c.reply.Error("ERR the policy file says how this server is configured: CONFIG GET alone is served")
		return
	}
	known := [][2]string{{"appendonly", "no"}, {"databases", "1"}, {"maxmemory", "0"}, {"maxmemory-policy", "noeviction"}, {"save", ""}, {"timeout", "0"}}
	var found [][2]string
	for _, k := range known {
		for _, pattern := range args[2:] {
			if ok, err := path.Match(strings.ToLower(string(pattern)), k[0]); err == nil && ok {
				found = append(found, k)
				break
			}
		}
	}
	c.reply.Map(len(found))
	for _, k := range found {
		c.reply.Text(k[0])
		c.reply.Text(k[1])
	}
}

// info is INFO: what clients and tools look for.
func (c *conn) info([][]byte) {
	f := c.face
	stats := f.backlogs.Stats()
	counts := &f.counts
	c.reply.Verbatim(strings.ReplaceAll(fmt.Sprintf(`# Server
redis_version:%s
redis_mode:standalone
server_name:weir
os:%s
tcp_port:%s
uptime_in_seconds:%d

# Clients
connected_clients:%d

# Persistence
loading:0

# Stats
total_connections_received:%d
total_commands_processed:%d
throttle_admitted:%d
throttle_limited:%d
throttle_keys:%d
throttle_keys_evicted:%d

# Replication
role:master
connected_slaves:0
`, redisVersion, runtime.GOOS, portOf(f.endpoint.Address()), int(time.Since(f.started).Seconds()), f.Draining(), f.lastID.Load(),
		counts.commands.Load(), counts.admitted.Load(), counts.limited.Load(), stats.Keys, stats.EvictedFull), "\n", "\r\n"))
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// cluster is CLUSTER, which some clients send to find out that there is none.
func (c *conn) cluster([][]byte) {
	c.reply.Error("ERR This instance has cluster support disabled")
}
