package weirsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"modernc.org/sqlite"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/weirkv"
)

// A session is a connection to the file, which one goroutine uses. SQLite ends its calls by itself, as no
// statement waits for a lock, so they have no contexts.
type session struct {
	path string
	file os.FileInfo // what was opened
	db   *sql.DB
	conn *sql.Conn

	get, put      *sql.Stmt
	begin, commit *sql.Stmt
	look, expire  *sql.Stmt
	truncate      *sql.Stmt
	looked        time.Time // when the size of the log was looked at
}

// moved reports whether the path leads to another file than the one that was opened, or to none: processes
// that start later would have other counts.
func (s *session) moved() bool {
	now, err := os.Lstat(s.path)
	return err != nil || !os.SameFile(now, s.file)
}

// statements returns the prepared statements. Each is nil until it was prepared.
func (s *session) statements() []*sql.Stmt {
	return []*sql.Stmt{s.get, s.put, s.begin, s.commit, s.truncate, s.look, s.expire}
}

// close closes the session, if there is one, and with it its transaction.
func (s *session) close() {
	if s != nil {
		// A statement that was prepared on a connection is not closed with it, and keeps SQLite's connection open.
		for _, statement := range s.statements() {
			if statement != nil {
				_ = statement.Close() // what was wrong is the error of the call that failed
			}
		}
		_ = s.conn.Close() // what has failed to be closed is closed nevertheless
		_ = s.db.Close()
	}
}

// read reads the keys of operations.
func (s *session) read(ctx context.Context, l *lane, batch []*operation) error {
	for _, o := range batch {
		err := s.whileBusy(ctx, l, batch, func() (err error) {
			o.item, err = s.item(o.key)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write carries out operations in one transaction.
func (s *session) write(ctx context.Context, l *lane, batch []*operation) error {
	if err := s.whileBusy(ctx, l, batch, func() error { return s.run(s.begin) }); err != nil {
		return err
	}
	for _, o := range batch {
		if err := s.update(o); err != nil {
			return err
		}
	}
	if err := s.run(s.commit); err != nil {
		return err
	}
	s.boundLog()
	return nil
}

// The log of the file is emptied when it is this long. SQLite writes it back into the file after 4 MB, but begins
// it anew only if nobody has written meanwhile, which several busy processes always have.
const (
	longestLog = 16 << 20
	logEvery   = 50 * time.Millisecond
)

// boundLog empties a log that is too long. If another process writes at that moment, it does so the next time.
func (s *session) boundLog() {
	now := time.Now()
	if now.Sub(s.looked) < logEvery {
		return
	}
	s.looked = now
	if info, err := os.Stat(s.path + "-wal"); err != nil || info.Size() < longestLog {
		return
	}
	var busy, length, moved int
	_ = s.truncate.QueryRow().Scan(&busy, &length, &moved) // what is wrong with the file is the error of the next call
}

// update carries out one operation within a transaction.
func (s *session) update(o *operation) (err error) {
	if o.hasLeft() {
		return nil
	}
	if o.sweep != nil {
		return o.sweep(s)
	}
	if o.item, err = s.item(o.key); err != nil {
		return err
	}
	o.mu.Lock()
	if o.left {
		o.mu.Unlock()
		return nil
	}
	value, ttl, write := o.next(o.item)
	o.mu.Unlock()
	if !write {
		return nil
	}
	// A random revision is never that of a row that has expired meanwhile and is here again.
	o.item = weirkv.Item{Revision: rand.Uint64N(math.MaxInt64) + 1}
	_, err = s.put.Exec(o.key, int64(o.item.Revision), value, ends(time.Now(), ttl))
	return s.explain(err)
}

// ends is when a row expires, in nanoseconds since 1970.
func ends(now time.Time, ttl time.Duration) int64 {
	return now.UnixNano() + min(int64(ttl), math.MaxInt64-now.UnixNano())
}

// item reads a key.
func (s *session) item(key string) (item weirkv.Item, err error) {
	var revision int64
	switch err = s.get.QueryRow(key, time.Now().UnixNano()).Scan(&revision, &item.Value); {
	case errors.Is(err, sql.ErrNoRows):
		return weirkv.Item{}, nil
	case err != nil:
		return weirkv.Item{}, s.explain(err)
	}
	item.Revision = uint64(revision)
	return item, nil
}

func (s *session) run(statement *sql.Stmt) error {
	_, err := statement.Exec()
	return s.explain(err)
}

// Pauses between attempts to get a lock that another process has. SQLite's own grow to 100 ms.
const (
	shortestPause = 20 * time.Microsecond
	longestPause  = time.Millisecond
)

// whileBusy does something, again and again while another process has the lock and there are callers who wait.
func (s *session) whileBusy(ctx context.Context, l *lane, batch []*operation, do func() error) error {
	defer l.locked.Store(false)
	for most := shortestPause; ; most = min(2*most, longestPause) {
		err := do()
		if err == nil || !errors.Is(err, errBusy) {
			return err
		}
		l.locked.Store(true)
		wanted := false
		for _, o := range batch {
			wanted = wanted || !o.hasLeft()
		}
		if !wanted || ctx.Err() != nil {
			return err
		}
		_ = pause.For(ctx, rand.N(most)+1) // the loop looks at the context
	}
}

// errBusy is found in an error that says that another process has the lock.
var errBusy = errors.New("another process holds the lock")

// Result codes of SQLite, without their extensions.
const (
	codePerm     = 3
	codeBusy     = 5
	codeReadOnly = 8
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// explain returns an error that says what to do.
func (s *session) explain(err error) error {
	if err == nil {
		return nil
	}
	code := -1
	if from, ok := errors.AsType[*sqlite.Error](err); ok {
		code = from.Code() & 0xff
	}
	switch code {
	case codeBusy:
		return fmt.Errorf("weirsqlite: %s: %w: %w", s.path, errBusy, err)
	case codePerm, codeReadOnly, codeCantOpen:
		return fmt.Errorf("weirsqlite: %s: the user of this process must be able to write the file and its directory: %w", s.path, err)
	case codeFull:
		return fmt.Errorf("weirsqlite: %s: the disk is full: make room, or move the file to another disk: %w", s.path, err)
	case codeCorrupt:
		return fmt.Errorf("weirsqlite: %s is damaged: move it away, and its limits start over: %w", s.path, err)
	case codeNotADB:
		return fmt.Errorf("weirsqlite: %s is no SQLite database, and is left alone: set another path: %w", s.path, err)
	}
	return fmt.Errorf("weirsqlite: %s: %w", s.path, err)
}
