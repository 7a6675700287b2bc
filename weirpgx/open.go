package weirpgx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/weirsql"
)

// A Store is a weirsql.Store with connections of its own.
type Store struct {
	*weirsql.Store
	pool    *pgxpool.Pool
	config  *pgxpool.Config
	schema  weirsql.Schema
	migrate bool

	ctx    context.Context
	cancel context.CancelFunc
	task   sync.WaitGroup
	ready  chan struct{} // closed once the server can carry out calls

	mu  sync.Mutex
	err error // of the latest attempt
}

// An Address is what a URL says.
type Address struct {
	Hosts    []string // HOST:PORT, or the folder of a Unix socket
	Database string
	Schema   weirsql.Schema
	Durable  bool
	Migrate  bool // make the tables and functions if they are not there

	pool     *pgxpool.Config
	prepares bool // statements, where nothing is in between
}

// ParseURL reads a URL as psql does:
//
//	postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]/DATABASE[?PARAMETER=VALUE&...]
//
// Parameters are those of libpq and pgx, such as sslmode and target_session_attrs, and these: schema
// (default: weir), unlogged, durable (default: false), and migrate (default: true). Errors hold no password.
func ParseURL(text string) (Address, error) {
	a := Address{Migrate: true}
	u, err := url.Parse(text)
	if err != nil {
		return a, errors.New("this is no URL: write it like postgres://weir@127.0.0.1:5432/weir")
	}
	query := u.Query()
	for name, to := range map[string]*bool{"unlogged": &a.Schema.Unlogged, "durable": &a.Durable, "migrate": &a.Migrate} {
		if !query.Has(name) {
			continue
		}
		value := query.Get(name)
		if *to, err = strconv.ParseBool(value); err != nil {
			return a, fmt.Errorf("%s is %q: write true or false", name, value)
		}
		query.Del(name)
	}
	if a.Durable && a.Schema.Unlogged {
		return a, errors.New("unlogged=true and durable=true contradict each other: a crash of the server empties tables that are not logged; write one of them")
	}
	a.Schema.Name = query.Get("schema")
	query.Del("schema")
	if _, err := a.Schema.Script(); err != nil {
		return a, errors.New(strings.TrimPrefix(err.Error(), "weirsql: "))
	}
	prepares, sized := query.Has("default_query_exec_mode"), query.Has("pool_max_conns")
	u.RawQuery = query.Encode()
	if a.pool, err = pgxpool.ParseConfig(u.String()); err != nil {
		var wrong *url.Error
		if errors.As(err, &wrong) {
			return a, errors.New("this is no URL: write it like postgres://weir@127.0.0.1:5432/weir")
		}
		return a, errors.New(strings.ReplaceAll(err.Error(), u.String(), u.Redacted())) // pgx hides passwords, too
	}
	if err := checkSettings(a.pool.ConnConfig.RuntimeParams); err != nil {
		return a, err
	}
	if !prepares { // a pgbouncer in between would not find prepared statements again: see find
		a.pool.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		a.prepares = true
	}
	if !sized {
		a.pool.MaxConns = defaultConnections
	}
	if a.pool.ConnConfig.RuntimeParams["application_name"] == "" {
		a.pool.ConnConfig.RuntimeParams["application_name"] = "weir"
	}
	if a.pool.ConnConfig.ConnectTimeout == 0 {
		a.pool.ConnConfig.ConnectTimeout = connectTimeout
	}
	c := a.pool.ConnConfig
	a.Database = c.Database
	a.Hosts = []string{hostOf(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if host := hostOf(f.Host, f.Port); !slices.Contains(a.Hosts, host) {
			a.Hosts = append(a.Hosts, host)
		}
	}
	return a, nil
}

// settings are those of the server that a URL may have as parameters: pgx takes every name that it does not know for
// one, and so each that is mistyped.
var settings = []string{"application_name", "options", "search_path", "client_encoding", "timezone", "role", "synchronous_commit", "work_mem", "statement_timeout", "lock_timeout",
	"idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"}

// checkSettings finds parameters that are no settings of the server.
func checkSettings(found map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(settings, strings.ToLower(name)) && !strings.Contains(name, ".") { // those of extensions have a dot
			return fmt.Errorf("the parameter %q is unknown: write schema, unlogged, durable, migrate, pool_max_conns, or a parameter of libpq, like sslmode; another setting of the server is options=-c%%20NAME=VALUE", name)
		}
	}
	return nil
}

func hostOf(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

const (
	defaultConnections = 4
	connectTimeout     = 2 * time.Second
	retryEvery         = 200 * time.Millisecond
	retryAtMost        = 5 * time.Second
)

// Open returns a Store at a URL: see ParseURL. It connects in the background, makes the tables and
// functions if they are not there, and reconnects whenever a connection is lost. A server that cannot be
// reached is no error of Open: calls fail until it can be, and Ready waits for it. Options.Schema and
// Durable are those of the URL. Close closes the Store and its connections.
func Open(text string, o weirsql.Options) (*Store, error) {
	a, err := ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("weirpgx: %w", err)
	}
	name := cmp.Or(a.Schema.Name, "weir")
	a.pool.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		// the first call of a connection would otherwise wait for the server to read the functions; that
		// they are not there yet is found elsewhere
		_, _ = c.Exec(ctx, `SELECT "`+name+`".warm()`)
		if a.prepares {
			find(ctx, c)
		}
		return nil
	}
	s := &Store{config: a.pool, schema: a.Schema, migrate: a.Migrate, ready: make(chan struct{}), err: errors.New("no connection yet")}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.pool, err = pgxpool.NewWithConfig(s.ctx, a.pool); err != nil {
		s.cancel()
		return nil, fmt.Errorf("weirpgx: %w", err)
	}
	o.Schema, o.Durable = a.Schema, a.Durable
	if s.Store, err = New(s.pool, o); err != nil {
		s.cancel()
		s.pool.Close()
		return nil, err
	}
	s.task.Go(s.connect)
	return s, nil
}

// connect waits until the server can carry out calls.
func (s *Store) connect() {
	for wait := time.Duration(0); ; {
		ctx, cancel := context.WithTimeout(s.ctx, 5*connectTimeout)
		var err error
		if s.migrate {
			err = s.schema.Migrate(ctx, Querier(s.pool))
		}
		if err == nil {
			err = s.Ping(ctx)
		}
		cancel()
		if err == nil {
			close(s.ready)
			return
		}
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		wait = nextWait(wait, err)
		if pause.For(s.ctx, wait) != nil {
			return
		}
	}
}

// nextWait returns the wait after a failed attempt to connect, of the wait before it. It grows while the
// server refuses what an operator has to change, as each attempt is several lines of the server's log.
func nextWait(last time.Duration, err error) time.Duration {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) && len(coded.SQLState()) == 5 {
		switch coded.SQLState()[:2] {
		case "28", "3D", "3F", "42", "WR": // passwords, databases, schemas, rights and tables, settings
			return min(max(2*last, retryEvery), retryAtMost)
		}
	}
	return retryEvery
}

// Ready waits until the server can carry out calls for the first time. If the context ends first, the
// error says why it could not.
func (s *Store) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
	}
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("weirpgx: not ready: %w", s.err)
}

// Connected reports whether the server has ever been ready. Only a call can find out whether it is now.
func (s *Store) Connected() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// Separate returns a Querier at the same URL with up to n connections of its own, for calls that must not wait for
// those of the Store, nor keep them waiting. It connects in the background. close closes the connections.
func (s *Store) Separate(n int) (q weirsql.Querier, close func(), err error) {
	config := s.config.Copy()
	config.MaxConns, config.MinConns = int32(n), 1
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(s.ctx), config)
	if err != nil {
		return nil, nil, fmt.Errorf("weirpgx: %w", err)
	}
	return Querier(pool), pool.Close, nil
}

// Schema returns the schema of the URL.
func (s *Store) Schema() weirsql.Schema { return s.schema }

// Close ends calls in flight, and closes the connections.
func (s *Store) Close() error {
	s.cancel()
	err := s.Store.Close()
	s.task.Wait()
	s.pool.Close()
	return err
}
