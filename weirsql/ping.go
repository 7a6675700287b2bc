package weirsql

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Ping tests whether the server would carry out charges: whether it is reachable, has the tables and
// functions, and lets this user change rows, which a standby does not. It makes a charge to a key of
// its own, and resets that key in the same call: no limit is charged.
func (s *Store) Ping(ctx context.Context) error {
	text, err := s.querier.Query(ctx, "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' WHEN v.version < "+strconv.Itoa(schemaVersion)+" THEN 'version ' || v.version"+
		" ELSE "+s.schema+".carry_out($1::bigint, $2::bigint, $3::bigint, $4::boolean, $5::text[], '{}', $6::bytea[], '{1,1,0,1,0,0,0,1,1,6,0,0,0,0}', '{\"\",\"\"}') END"+
		" FROM (SELECT coalesce(max(version), 0) AS version FROM "+s.schema+".migrations) v",
		strconv.FormatInt(s.probes, 10), strconv.FormatInt(s.probed.Add(1), 10), strconv.FormatInt(most, 10), strconv.FormatBool(s.opts.Durable),
		array([]string{"{1,0,1,1000000,1,0}"}), array([]string{`\x` + hex.EncodeToString(strconv.AppendInt([]byte("\x02"), s.probes, 10))}))
	switch version, old := strings.CutPrefix(text, "version "); {
	case isMissing(err):
		return fmt.Errorf("weirsql: the tables and functions of schema %s are not there: run `%s`: %w", s.schema, s.opts.Schema.command(), err)
	case err != nil:
		return fmt.Errorf("weirsql: %w", err)
	case text == "standby":
		return errors.New("weirsql: the server is a standby, which can change nothing")
	case old:
		return fmt.Errorf("weirsql: the schema %s has version %s of the tables and functions, and %d is needed: run `%s`", s.schema, version, schemaVersion, s.opts.Schema.command())
	}
	return nil
}
