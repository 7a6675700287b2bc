package resp

import (
	"bytes"
	"errors"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/resp/wire"
)

const resetForm = "ERR write: WEIR.RESET LIMIT NUMPARTS PART..., or WEIR.RESET CL.THROTTLE 1 KEY"

// resetKey is WEIR.RESET limit numparts part...: the key starts over without counts. The limit may be
// CL.THROTTLE, which no limit of a policy is called. Named limits are their clients' own: without users,
// every client may reset them, as it may change them.
func (c *conn) resetKey(args [][]byte) {
	parts, number := wire.ParseInt(args[2])
	if !number || parts < 0 || parts != int64(len(args)-3) {
		c.reply.Error(resetForm)
		return
	}
	if c.session.settings.users == nil && !bytes.HasPrefix(args[1], []byte(namedMark)) {
		c.reply.Error("NOPERM WEIR.RESET is for users with +weir.reset, and this policy has no listen.resp.users")
		return
	}
	var err error
	if name := string(args[1]); strings.EqualFold(name, throttleName) {
		if parts != 1 {
			c.reply.Error(resetForm)
			return
		}
		err = c.resetThrottle(args[3])
	} else {
		of, ok := c.engineOf([]policy.Ask{{Limit: name, Key: texts(args[3:])}})
		if !ok {
			return
		}
		err = of.engine.Reset(c.context(), of.all[0])
	}
	if err != nil {
		c.decisionError(err)
		return
	}
	c.reply.Simple("OK")
}

// resetThrottle resets a key of CL.THROTTLE.
func (c *conn) resetThrottle(key []byte) error {
	store := c.session.settings.store
	if store == nil {
		c.face.backlogs.Reset(key)
		return nil
	}
	// the key keeps no parameters, so any will do
	batch := []weir.Charge{{Name: throttleName, Key: string(key), EachCall: true, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, Op: weir.OpReset}}
	return store.Do(c.context(), batch, make([]weir.Decision, 1))
}

// texts copies words out of the buffer of the connection.
func texts(words [][]byte) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return all
}

// decisionError writes why there is no decision.
func (c *conn) decisionError(err error) {
	text := strings.TrimPrefix(err.Error(), "weir: ")
	var wrong *policy.AskError
	if !errors.As(err, &wrong) {
		text = "no decision: " + text
	}
	c.reply.Error("ERR " + text)
}
