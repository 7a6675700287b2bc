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
// its own, and resets that key in the same call: no limit is charged. Tables that this charge does not need
// are looked at for the rights of the user alone.
func (s *Store) Ping(ctx context.Context) error {
	text, err := s.querier.Query(ctx, "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' WHEN v.version < "+strconv.Itoa(schemaVersion)+" THEN 'version ' || v.version::text"+
		" ELSE coalesce((SELECT 'denied ' || t || ' ' || pg_catalog.quote_ident(current_user) FROM pg_catalog.unnest('{states,calls,settlements,nodes,rooms,visitors,parts}'::text[]) WITH ORDINALITY AS tables (t, at)"+
		" WHERE NOT (SELECT bool_and(has_table_privilege('"+s.schema+".' || t, p)) FROM pg_catalog.unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p) ORDER BY at LIMIT 1),"+
		" "+s.schema+".carry_out($1::bigint, $2::bigint, $3::bigint, $4::boolean, $5::text[], '{}', $6::bytea[], '{1,1,0,1,0,0,0,1,1,6,0,0,0,0}', '{\"\",\"\"}')) END"+
		" FROM (SELECT coalesce(max(version), 0) AS version FROM "+s.schema+".migrations) v",
		strconv.FormatInt(s.probes, 10), strconv.FormatInt(s.probed.Add(1), 10), strconv.FormatInt(most, 10), strconv.FormatBool(s.opts.Durable),
		array([]string{"{1,0,1,1000000,1,0}"}), array([]string{`\x` + hex.EncodeToString(strconv.AppendInt([]byte("\x02"), s.probes, 10))}))
	denied, isDenied := strings.CutPrefix(text, "denied ")
	switch version, old := strings.CutPrefix(text, "version "); {
	case isMissing(err):
		return fmt.Errorf("weirsql: the tables and functions of schema %s are not there: run `%s`: %w", s.schema, s.opts.Schema.command(), err)
	case stateOf(err) == "42501": // the schema, or which version its tables have
		return s.opts.Schema.denied(ctx, s.querier, err)
	case err != nil:
		return fmt.Errorf("weirsql: %w", err)
	case isDenied:
		table, user, _ := strings.Cut(denied, " ")
		return fmt.Errorf("weirsql: permission denied for table %s: %s", table, s.opts.Schema.grants(user))
	case text == "standby":
		return errors.New("weirsql: the server is a standby, which can change nothing")
	case old:
		return fmt.Errorf("weirsql: the schema %s has version %s of the tables and functions, and %d is needed: run `%s`", s.schema, version, schemaVersion, s.opts.Schema.command())
	}
	return nil
}

// denied is the error of a user who may not use the schema, with what gives the rights.
func (s Schema) denied(ctx context.Context, q Querier, err error) error {
	user, _ := q.Query(ctx, "SELECT pg_catalog.quote_ident(current_user)")
	return fmt.Errorf("weirsql: %w: %s", err, s.grants(user))
}

// grants says how a user gets all rights that it needs. It is quoted as SQL has it; empty if it is not known.
func (s Schema) grants(user string) string {
	if user == "" {
		user = "USER"
	}
	name, _ := s.quoted() // it was valid when the Store was made
	return fmt.Sprintf("run `GRANT USAGE ON SCHEMA %[1]s TO %[2]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;` as the owner of the tables", name, user)
}
