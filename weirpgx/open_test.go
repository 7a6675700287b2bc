package weirpgx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestNextWait: attempts to connect become rare while an operator has to act, and are frequent where the
// server may be back at any time.
func TestNextWait(t *testing.T) {
	for _, state := range []string{"28P01", "3D000", "3F000", "42501", "42P01", "WR004"} {
		wait, n := time.Duration(0), 0
		for total := time.Duration(0); total < 3*time.Minute; total += wait {
			wait = nextWait(wait, fmt.Errorf("weirsql: %w", &pgconn.PgError{Code: state}))
			n++
		}
		if n > 50 {
			t.Errorf("%s: %d attempts in 3 minutes", state, n)
		}
	}
	for _, err := range []error{errors.New("connection refused"), &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "25006"}} {
		if wait := nextWait(retryAtMost, err); wait != retryEvery {
			t.Errorf("%v: the next attempt after %v", err, wait)
		}
	}
}

// TestParameters: a parameter that nobody knows is an error, and no setting of the server, which would refuse
// every connection.
func TestParameters(t *testing.T) {
	if _, err := ParseURL("postgres://weir@127.0.0.1/weir?durable=true&unlogged=true"); err == nil || !strings.Contains(err.Error(), "contradict each other") {
		t.Error(err)
	}
	for _, good := range []string{"", "?sslmode=disable&schema=a&pool_max_conns=3&target_session_attrs=read-write", "?application_name=x&statement_timeout=1s", "?options=-c%20geqo%3Doff", "?pool_max_conn_lifetime=1h&connect_timeout=3", "?my.setting=1"} {
		if _, err := ParseURL("postgres://weir@127.0.0.1/weir" + good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"shema=x", "ssl_mode=disable", "max_conns=3", "Durable=true"} {
		_, err := ParseURL("postgres://weir:s3cret@127.0.0.1/weir?" + bad)
		if name, _, _ := strings.Cut(bad, "="); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the parameter %q is unknown", name)) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
