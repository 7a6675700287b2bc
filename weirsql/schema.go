package weirsql

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed postgres/*.sql
var source embed.FS

// parts are the files of the schema, in the order in which they are carried out.
var parts = [...]string{"tables", "bucket", "interval", "fixed", "counter", "list", "window", "log", "rules", "clock", "versions", "ask", "take", "key", "room", "carry", "sweep"}

// schemaVersion is raised with each change of the tables or functions.
const schemaVersion = 5

// A Schema says where the tables and functions are.
type Schema struct {
	// Name of the schema in PostgreSQL: lower-case letters, digits and _, and not pg_ at the beginning.
	// Default: "weir".
	Name string

	// Unlogged tables are not written to the write-ahead log: updates cost less, but a crash of the
	// server empties the tables, and a standby does not have them. Each loss admits at most one more
	// capacity of each limit. It counts when the tables are made. Default: logged tables.
	Unlogged bool

	// Clock is for tests: an SQL expression of microseconds that replaces the server's clock. Only the
	// lines that read the clock differ.
	Clock string
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// serverClock is the expression that reads the server's clock.
const serverClock = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"

func (s Schema) name() (string, error) {
	switch {
	case s.Name == "":
		return "weir", nil
	case !schemaName.MatchString(s.Name):
		return "", fmt.Errorf("weirsql: %q cannot be the name of the schema: it has lower-case letters, digits and _, like limits_eu", s.Name)
	case strings.HasPrefix(s.Name, "pg_"):
		return "", fmt.Errorf("weirsql: %q cannot be the name of the schema: PostgreSQL reserves pg_; write another beginning, like limits_eu", s.Name)
	}
	return s.Name, nil
}

// quoted returns the name as SQL has it: user and order are words of its own otherwise.
func (s Schema) quoted() (string, error) {
	name, err := s.name()
	if name != "weir" {
		name = `"` + name + `"`
	}
	return name, err
}

// command is what makes the tables and functions by hand.
func (s Schema) command() string {
	c := "weir store sql"
	if s.Name != "" && s.Name != "weir" {
		c += " --schema " + s.Name
	}
	if s.Unlogged {
		c += " --unlogged"
	}
	return c + " | psql"
}

// Script returns the SQL that makes the tables and functions, for psql or a tool for migrations. It can
// be carried out again, and by several sessions at once. It needs PostgreSQL 14 or later.
func (s Schema) Script() (string, error) {
	name, err := s.quoted()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n-- One session at a time makes the schema.\nSELECT pg_advisory_xact_lock(8387229063);\n")
	b.WriteString("SET LOCAL client_min_messages = warning;\n")
	b.WriteString("-- Other users' functions and operators are not looked at, here and in the functions that callers call.\nSET LOCAL search_path = pg_catalog, pg_temp;\n\n")
	for _, part := range parts {
		text, err := source.ReadFile("postgres/" + part + ".sql")
		if err != nil {
			return "", err
		}
		b.Write(text)
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "INSERT INTO weir.migrations (version) VALUES (%d) ON CONFLICT DO NOTHING;\nCOMMIT;\n", schemaVersion)
	text := b.String()
	if s.Clock != "" {
		text = strings.ReplaceAll(text, serverClock, s.Clock)
	}
	unlogged := ""
	if s.Unlogged {
		unlogged = "UNLOGGED "
	}
	text = strings.ReplaceAll(text, "/*unlogged*/ ", unlogged)
	return schemaWord.ReplaceAllStringFunc(text, func(word string) string {
		return strings.Replace(word, "weir", name, 1)
	}), nil
}

// schemaWord is where the name of the schema stands.
var schemaWord = regexp.MustCompile(`\bweir\.[a-z]|EXISTS weir;`)

// Migrate makes the tables and functions unless they are there in this version. Several processes may
// do so at once. The user needs the right to create them.
func (s Schema) Migrate(ctx context.Context, q Querier) error {
	version, err := s.version(ctx, q)
	if err != nil || version >= schemaVersion {
		return err
	}
	script, err := s.Script()
	if err != nil {
		return err
	}
	switch err := q.Exec(ctx, script); {
	case stateOf(err) == "42501":
		return fmt.Errorf("weirsql: this user may not make the tables and functions: run `%s` as a user who may, and grant this one the rights: %w", s.command(), err)
	case err != nil:
		return fmt.Errorf("weirsql: the tables and functions could not be made: %w", err)
	}
	return nil
}

// version returns the version of the schema; 0 if there is none.
func (s Schema) version(ctx context.Context, q Querier) (int, error) {
	name, err := s.quoted()
	if err != nil {
		return 0, err
	}
	text, err := q.Query(ctx, "SELECT coalesce(max(version), 0)::text FROM "+name+".migrations")
	switch {
	case isMissing(err):
		return 0, nil
	case stateOf(err) == "42501":
		return 0, s.denied(ctx, q, err)
	case err != nil:
		return 0, fmt.Errorf("weirsql: %w", err)
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		return 0, errReply
	}
	return version, nil
}

// stateOf returns the SQLSTATE of an error of the server; "" for any other error.
func stateOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// isMissing reports whether the server lacks the schema, or a part of it.
func isMissing(err error) bool {
	switch stateOf(err) {
	case "3F000", "42P01", "42883", "42704":
		return true
	}
	return false
}
