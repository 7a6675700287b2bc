package weirmysql

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"
)

var (
	//go:embed table.sql
	tableSQL string
	//go:embed take.sql
	takeSQL string
	//go:embed lock.sql
	lockSQL string
	//go:embed write.sql
	writeSQL string
)

// clock reads the server's clock: microseconds since 1970, in no time zone. UNIX_TIMESTAMP would go by that of the
// session, and repeat an hour at the end of summer time.
const clock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// A Schema is the table and the stored procedures. The zero value is the one that Open makes.
type Schema struct {
	// Clock is for tests: an SQL expression of microseconds that replaces the server's clock.
	Clock string
}

// procedures are the statements that make the procedures. A change of one gives it another name, so that
// nodes of both versions find theirs.
func (s Schema) procedures() []string {
	if s.Clock == "" {
		s.Clock = clock
	}
	var all []string
	for _, text := range []string{takeSQL, lockSQL, writeSQL} {
		all = append(all, strings.ReplaceAll(strings.TrimSpace(text), "/*clock*/", s.Clock))
	}
	return all
}

// Script returns the SQL that makes the table and the procedures that are not there, for the client mariadb or mysql. It
// can be carried out again, and while Weir runs.
func (s Schema) Script() string {
	var b strings.Builder
	b.WriteString("SET SESSION sql_mode = '" + procedureMode + "';\n")
	b.WriteString(tableSQL)
	b.WriteString("DELIMITER //\n")
	for _, p := range s.procedures() {
		// With the procedure, a DROP would remove the rights to it.
		b.WriteString(strings.Replace(p, "CREATE PROCEDURE ", "CREATE PROCEDURE IF NOT EXISTS ", 1) + " //\n")
	}
	b.WriteString("DELIMITER ;\n")
	return b.String()
}

// procedureMode is the sql_mode that the procedures keep: numbers that do not fit are errors.
const procedureMode = "STRICT_ALL_TABLES"

// Migrate makes the table and the procedures that are not there. Several processes may do so at once. The user needs
// the rights CREATE and CREATE ROUTINE.
func (s Schema) Migrate(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	if _, err := conn.ExecContext(ctx, tableSQL); err != nil {
		return err
	}
	var mode string
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.sql_mode").Scan(&mode); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = '"+procedureMode+"'"); err != nil {
		return err
	}
	for _, p := range s.procedures() {
		if _, err = conn.ExecContext(ctx, p); err != nil && codeOf(err) != codeExists {
			break
		}
		err = nil
	}
	if _, back := conn.ExecContext(context.WithoutCancel(ctx), "SET SESSION sql_mode = '"+mode+"'"); err == nil {
		err = back
	}
	return err
}
