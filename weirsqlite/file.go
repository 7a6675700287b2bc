package weirsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// What the header of a file says that is ours. A later format has another version, and processes that do not
// know it leave the file alone.
const (
	application   = 0x57656972 // "Weir"
	formatVersion = 1
)

const schema = `CREATE TABLE states (
	key TEXT PRIMARY KEY,
	revision INTEGER NOT NULL,
	value BLOB NOT NULL,
	expires INTEGER NOT NULL -- nanoseconds since 1970
) WITHOUT ROWID`

// opening is held while a file is made or a connection is opened: a process loses all locks of a file
// when it closes any descriptor of it, which SQLite knows only of its own.
var opening sync.Mutex

// openSession opens the file, and makes it if it is not there.
func openSession(ctx context.Context, c Config) (*session, error) {
	opening.Lock()
	file, err := prepare(c.Path)
	if err != nil {
		opening.Unlock()
		return nil, err
	}
	s := &session{path: c.Path, file: file}
	level := "NORMAL"
	if c.Durable {
		level = "FULL"
	}
	if c.pages > 0 {
		level += fmt.Sprintf(")&_pragma=max_page_count(%d", c.pages)
	}
	source := "file:" + (&url.URL{Path: filepath.ToSlash(c.Path)}).EscapedPath() + "?mode=rw&_pragma=busy_timeout(0)&_pragma=trusted_schema(0)&_pragma=synchronous(" + level + ")&_pragma=journal_size_limit(4194304)"
	if s.db, err = sql.Open("sqlite", source); err == nil {
		s.conn, err = s.db.Conn(ctx)
	}
	opening.Unlock()
	if err != nil {
		_ = s.db.Close()
		return nil, s.explain(err)
	}
	for until := time.Now().Add(time.Second); ; {
		err = s.initialise(ctx)
		if !errors.Is(err, errBusy) || time.Now().After(until) || ctx.Err() != nil {
			break
		}
		_ = pause.For(ctx, rand.N(longestPause)+1) // the loop looks at the context
	}
	if err == nil && s.moved() {
		err = fmt.Errorf("weirsqlite: %s was replaced while it was opened", c.Path)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepare makes a file that is not there, which only its owner may read, and finds out whether it can be used.
func prepare(path string) (os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		err = f.Close()
	case errors.Is(err, fs.ErrExist):
		err = nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("weirsqlite: the directory of %s is not there: make it, for example by install -d -m 700 %s", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("weirsqlite: %w: the user of this process must be able to write in this directory", err)
	}
	for _, end := range []string{"-wal", "-shm"} {
		if info, err := os.Lstat(path + end); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("weirsqlite: %s is not a regular file: somebody else has made it; use a directory that only the user of this process can write", path+end)
		}
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("weirsqlite: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("weirsqlite: %s is a symbolic link: set the path that it leads to", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("weirsqlite: %s is not a regular file: set another path", path)
	case info.Mode().Perm()&0o002 != 0:
		return nil, fmt.Errorf("weirsqlite: every user may write %s: chmod 600 it, or 660 for processes of one group", path)
	}
	return info, nil
}

// initialise makes the tables of an empty file. It changes nothing in the file of another program.
func (s *session) initialise(ctx context.Context) error {
	empty, err := s.check(ctx)
	if err != nil {
		return err
	}
	var mode string
	if err := s.conn.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode); err != nil {
		return s.explain(err)
	}
	if mode != "wal" {
		return fmt.Errorf("weirsqlite: %s: this file system has no shared memory for several processes (SQLite's WAL mode): use a local disk", s.path)
	}
	if empty {
		if err := s.create(ctx); err != nil {
			return err
		}
	}
	return s.prepareAll(ctx)
}

// create makes the tables, unless another process has made them meanwhile.
func (s *session) create(ctx context.Context) error {
	if _, err := s.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return s.explain(err)
	}
	empty, err := s.check(ctx)
	if err == nil && empty {
		_, err = s.conn.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA application_id=%d; PRAGMA user_version=%d", schema, application, formatVersion))
		err = s.explain(err)
	}
	if err == nil {
		_, err = s.conn.ExecContext(ctx, "COMMIT")
		return s.explain(err)
	}
	_, _ = s.conn.ExecContext(ctx, "ROLLBACK") // the error is that before it
	return err
}

// check reports whether the file is empty, or why it cannot be used.
func (s *session) check(ctx context.Context) (empty bool, err error) {
	var id, version, tables int64
	row := s.conn.QueryRowContext(ctx, "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)")
	switch err := row.Scan(&id, &version, &tables); {
	case err != nil:
		return false, s.explain(err)
	case id == 0 && version == 0 && tables == 0:
		return true, nil
	case id != application:
		return false, fmt.Errorf("weirsqlite: %s is a database of another program, and is left alone: set another path", s.path)
	case version != formatVersion:
		return false, fmt.Errorf("weirsqlite: %s has format %d, and this version of weir knows format %d: use the version of weir that wrote it, or set another path", s.path, version, formatVersion)
	}
	return false, nil
}

// prepareAll prepares the statements.
func (s *session) prepareAll(ctx context.Context) (err error) {
	for _, p := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&s.get, "SELECT revision, value FROM states WHERE key = ?1 AND expires > ?2"},
		{&s.put, "INSERT INTO states VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE SET revision = ?2, value = ?3, expires = ?4"},
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.commit, "COMMIT"},
		{&s.truncate, "PRAGMA wal_checkpoint(TRUNCATE)"},
		{&s.look, "SELECT coalesce(max(key), ''), count(*), coalesce(sum(expires <= ?2), 0) FROM (SELECT key, expires FROM states WHERE key > ?1 ORDER BY key LIMIT ?3)"},
		{&s.expire, "DELETE FROM states WHERE key > ?1 AND key <= ?2 AND expires <= ?3"},
	} {
		if *p.to, err = s.conn.PrepareContext(ctx, p.text); err != nil {
			return s.explain(err)
		}
	}
	return nil
}
