package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/resp/wire"
)

const initForm = ": write WEIR.INIT @NAME ALGORITHM FIELD=VALUE... [PARTS n]"

// initNamed is WEIR.INIT @name algorithm field=value... [PARTS n]: it creates a named limit, or changes
// its parameters. What was used stays used if the states of the keys keep their size.
func (c *conn) initNamed(args [][]byte) {
	l, err := c.parseNamed(args[1:])
	var created bool
	if err == nil {
		created, err = c.face.named.init(l, c.maker())
	}
	var invalid *policy.Error
	if errors.As(err, &invalid) { // the client wrote no policy
		err = errors.New(strings.TrimSuffix(invalid.Problems[0].Message+": "+invalid.Problems[0].Fix, ": "))
	}
	switch {
	case errors.Is(err, errOwner):
		c.reply.Error("NOPERM " + err.Error())
	case err != nil:
		c.reply.Error("ERR " + printable([]byte(strings.TrimPrefix(err.Error(), "weir: ")), 512))
	case created:
		c.reply.Int(1)
	default:
		c.reply.Int(0)
	}
}

// maker is the client as the creator of named limits. Without users, every client may change all.
func (c *conn) maker() maker {
	u, user := c.session.settings.users, c.session.user
	return maker{user: user, all: u == nil || u.allow(user, everyCommand)}
}

// parseNamed parses a named limit.
func (c *conn) parseNamed(words [][]byte) (l policy.Limit, err error) {
	name, marked := strings.CutPrefix(string(words[0]), namedMark)
	switch {
	case !marked || name == "" || len(name) > maxNamedName:
		return l, fmt.Errorf("the name of a named limit is %s and 1 to %d letters, so that it is none of the policy's%s", namedMark, maxNamedName, initForm)
	case len(words) < 3:
		return l, fmt.Errorf("the parameters are missing%s", initForm)
	}
	parts := int64(1)
	if _, there := c.face.named.use(name); there != nil {
		parts = int64(len(there.of.Key))
	}
	if n := len(words); n > 4 && bytes.EqualFold(words[n-2], []byte("parts")) {
		var ok bool
		if parts, ok = wire.ParseInt(words[n-1]); !ok || parts < 0 || parts > maxNamedParts {
			return l, fmt.Errorf("PARTS is not 0 to %d%s", maxNamedParts, initForm)
		}
		words = words[:n-2]
	}
	fields := map[string]any{}
	for _, w := range words[2:] {
		field, value, ok := strings.Cut(string(w), "=")
		if !ok || fields[field] != nil {
			return l, fmt.Errorf("'%.80s' is not of the form FIELD=VALUE, or is there twice%s", w, initForm)
		}
		fields[field] = value
	}
	l = policy.Limit{Name: name}
	for i := range parts {
		l.Key = append(l.Key, fmt.Sprintf("query.part%d", i+1)) // a part that is kept as it is
	}
	if l.Limit, err = policy.ParseLimit(strings.ToLower(string(words[1])), fields); err != nil {
		return l, err
	}
	if rules.KindOf(l.Limit).NoRule != "" {
		return l, fmt.Errorf("a concurrency is entered and left, and nothing can be taken from it: name another algorithm")
	}
	return l, nil
}

// deleteNamed is WEIR.DEL @name.
func (c *conn) deleteNamed(args [][]byte) {
	name, marked := strings.CutPrefix(string(args[1]), namedMark)
	if !marked {
		c.reply.Error("ERR the names of named limits begin with " + namedMark + ", and limits of the policy cannot be deleted")
		return
	}
	there, err := c.face.named.remove(name)
	switch {
	case err != nil:
		c.decisionError(err)
	case there:
		c.reply.Int(1)
	default:
		c.reply.Int(0)
	}
}
