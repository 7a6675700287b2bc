package weirpgx

import (
	"errors"
	"fmt"
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
