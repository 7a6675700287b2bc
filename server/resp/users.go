package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/credential"
)

// users are the users of the face. They are never changed.
type users struct {
	byName  map[string]user
	path    string
	version [sha256.Size]byte // of the file
	failed  atomic.Bool       // it was logged that the file cannot be read again
}

// A user has passwords, and may use the commands that change limits for others: those named.
type user struct {
	passwords []password
	commands  []string // in lower case; everyCommand for all
}

// everyCommand stands for all commands that need a permission.
const everyCommand = "@all"

// A password is the hash of one.
type password [sha256.Size]byte

// Bounds of a file with users, and of the passwords that clients try.
const (
	maxUsersFile = 1 << 20
	defaultUser  = "default" // of AUTH with a password alone
	maxGuessers  = 1 << 16   // users and client addresses with a wrong password
	maxGuesses   = 5         // of one connection
)

// guessLimit is how many wrong passwords of a user a client address may try.
var guessLimit = weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 20}

const usersFix = "write a line for each user: user NAME on #HASH, with HASH of: printf %s PASSWORD | sha256sum"

// neutral are words of Redis' ACL files that change nothing here.
var neutral = []string{"on", "~*", "&*", "allkeys", "allchannels", "sanitize-payload"} //nolint:misspell // Redis' words

// permissions are the words that allow commands.
var permissions = map[string]string{"+@all": everyCommand, "allcommands": everyCommand, "+@admin": everyCommand, "+weir.init": "weir.init", "+weir.del": "weir.del", "+weir.reset": "weir.reset"}

// readUsers reads a file with users, in the form of Redis' ACL files: user NAME on #SHA256 >PASSWORD
// +COMMAND.
func readUsers(path string) (*users, error) {
	data, err := regular.Read(path, maxUsersFile)
	if err != nil {
		return nil, err
	}
	u := &users{byName: map[string]user{}, path: path, version: sha256.Sum256(data)}
	seen := map[string]bool{}
	for i, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 2 || words[0] != "user" {
			return nil, fmt.Errorf("line %d is not of the form user NAME on #HASH", i+1) // it may hold a password: it is not repeated
		}
		if seen[words[1]] {
			return nil, fmt.Errorf("line %d: there is a second line of this user", i+1)
		}
		seen[words[1]] = true
		one, on, err := parseUser(words[2:])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if on {
			u.byName[words[1]] = one
		}
	}
	if len(u.byName) == 0 {
		return nil, errors.New("there is no user who is on")
	}
	return u, nil
}

// parseUser reads the words of a user after the name.
func parseUser(words []string) (u user, on bool, err error) {
	for _, w := range words {
		switch text, hashed := strings.CutPrefix(w, "#"); {
		case hashed:
			hash, err := hex.DecodeString(text)
			if err != nil || len(hash) != sha256.Size {
				return u, false, errors.New("a # must be followed by a SHA-256 in hexadecimal")
			}
			if err := credential.Check(password(hash)); err != nil {
				return u, false, err
			}
			u.passwords = append(u.passwords, password(hash))
		case strings.HasPrefix(w, ">") && len(w) > 1:
			if credential.Check(sha256.Sum256([]byte(w[1:]))) != nil {
				return u, false, errors.New("the password after > is a sample, which everybody knows: write one of openssl rand -hex 32")
			}
			u.passwords = append(u.passwords, sha256.Sum256([]byte(w[1:])))
		case w == "off":
		case permissions[w] != "":
			u.commands = append(u.commands, permissions[w])
		case slices.Contains(neutral, w):
			on = on || w == "on"
		case w == "nopass":
			return u, false, errors.New("nopass admits everybody: take it out, or take users out of the policy")
		default:
			return u, false, errors.New("this file takes on, off, #HASH, >PASSWORD, +@all, +weir.init, +weir.del and +weir.reset: users differ by nothing else")
		}
	}
	if slices.Contains(words, "off") {
		on = false
	}
	if on && len(u.passwords) == 0 {
		return u, false, errors.New("the user has no password")
	}
	return u, on, nil
}

// know reports whether a password is the user's. Its time depends neither on the password nor on
// whether there is such a user, but for how many passwords the user has.
func (u *users) know(name []byte, hash password) bool {
	one, ok := u.byName[string(name)]
	all := one.passwords
	if !ok {
		all = []password{{}}
	}
	same := 0
	for i := range all {
		same |= subtle.ConstantTimeCompare(all[i][:], hash[:])
	}
	return ok && same == 1
}

// keep reports whether a client stays authenticated: the user is there, and the password is still
// one of the user's.
func (u *users) keep(name string, of password) bool {
	return slices.Contains(u.byName[name].passwords, of)
}

// allow reports whether a user may use a command that needs a permission.
func (u *users) allow(name, command string) bool {
	return slices.ContainsFunc(u.byName[name].commands, func(c string) bool { return c == command || c == everyCommand })
}

// guesser is the key under which wrong passwords are counted: the user and the client's address, so that
// nobody locks other users out. Names that are no user's are counted alike, as they must not differ.
func guesser(host string, name []byte) string {
	sum := sha256.Sum256(name) // names may be long
	return host + " " + string(sum[:])
}

// Errors of AUTH, as in Redis.
const (
	noPassword    = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	wrongPassword = "WRONGPASS invalid username-password pair or user is disabled."
)

// authenticate checks a user's password. Without users there is only the default one, of whom Redis takes any
// password that comes with the name: clients with a password connect to a server without. It returns the error for the client, and whether the
// connection ends.
func (c *conn) authenticate(name, secret []byte) (failure string, ends bool) {
	if c.session.settings.users == nil {
		if string(name) == defaultUser {
			return "", false
		}
		return wrongPassword, false
	}
	host, _, err := net.SplitHostPort(c.raw.RemoteAddr().String())
	if err != nil {
		host = ""
	}
	who := guesser(policy.ClientKeyOf(host), name) // one client usually has a whole /64
	if !c.face.guesses.Peek(who, 1).Allowed {
		c.face.counts.guesses.Add(1)
		return "ERR too many wrong passwords of this user from this address: try again later", true
	}
	hash := password(sha256.Sum256(secret))
	if len(secret) == 0 || !c.session.settings.users.know(name, hash) {
		c.face.counts.guesses.Add(1)
		c.face.guesses.Take(who, 1)
		c.session.guesses++
		return wrongPassword, c.session.guesses >= maxGuesses
	}
	c.session.user, c.session.password = string(name), hash
	if !c.session.known {
		c.session.known = true
		c.reader.Bound(fullBounds)
		c.setDeadline()
	}
	return "", false
}
