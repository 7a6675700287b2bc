package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	leasing "github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// leaseNode is the environment variable that makes this program a node of TestLeases.
const leaseNode = "WEIR_LEASE_NODE"

// All nodes take from hotBucket, or in one row from hotWindow. The other limit is the budget, see
// budgetOf.
var (
	hotBucket = weir.TokenBucket{Rate: weir.PerSecond(2000), Burst: 1000}
	hotWindow = weir.FixedWindow{Limit: 400, Window: 200 * time.Millisecond}
)

const (
	nodeCallers  = 8 // of each node
	nodeDeadline = 200 * time.Millisecond
	mostHeld     = 1000 // of each key, by each node
	nodeTick     = 2 * time.Millisecond
	mostBehind   = 100 * time.Millisecond // calls that are later than this are left out
)

// A nodeTask is what a node has to do.
type nodeTask struct {
	Seed      uint64
	Addr      string
	Ledger    string  // the file for the result of each call
	Hot, Rest float64 // calls for each of the two keys in a second
	Budget    int64
	Window    bool // the hot key is one of hotWindow
}

// A nodeReport is what a node writes at its end.
type nodeReport struct {
	Stats leasing.Stats
	Wrong []string
}

func (n nodeTask) run() (nodeReport, error) {
	file, err := os.OpenFile(n.Ledger, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nodeReport{}, err
	}
	defer file.Close()
	client, err := task{Addrs: []string{n.Addr}}.client()
	if err != nil {
		return nodeReport{}, err
	}
	store, err := weirrueidis.New(client, weirredis.Options{})
	if err != nil {
		return nodeReport{}, err
	}
	leased, err := leasing.New(store, leasing.Options{MaxOutstanding: mostHeld})
	if err != nil {
		return nodeReport{}, err
	}
	keys, err := n.keys(leased)
	if err != nil {
		return nodeReport{}, err
	}
	over, err := begun()
	if err != nil {
		return nodeReport{}, err
	}
	var r nodeReport
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range nodeCallers {
		wg.Go(func() {
			if err := n.call(keys, i, file, over); err != nil {
				mu.Lock()
				defer mu.Unlock()
				r.Wrong = append(r.Wrong, err.Error())
			}
		})
	}
	wg.Wait()
	_ = leased.Close() // returns the rest; its error is that of the store, which may be down
	r.Stats = leased.Stats()
	store.Close()
	client.Close()
	for _, where := range []string{"weir/weirredis.", "weir/lease."} {
		if left := lingering(where, patience); left != "" {
			r.Wrong = append(r.Wrong, "a goroutine is left:\n"+left)
		}
	}
	return r, nil
}

// keys are the two keys.
func (n nodeTask) keys(store weir.Store) (keys [2]*weir.Shared, err error) {
	hot := weir.Limit(hotBucket)
	if n.Window {
		hot = hotWindow
	}
	if keys[0], err = weir.NewShared(hot, store, weir.Named("hot")); err != nil {
		return keys, err
	}
	keys[1], err = weir.NewShared(budgetOf(n.Budget), store, weir.Named("budget"))
	return keys, err
}

// budgetOf returns a limit that does not refill during a test, so that charged tokens can be
// counted. It is a window, because a store gives back all that is returned to a window. To a bucket
// it may give back less if other nodes have returned tokens in between: see docs/guarantees.md.
func budgetOf(n int64) weir.FixedWindow {
	return weir.FixedWindow{Limit: n, Window: 30 * 24 * time.Hour, Align: weir.AlignFirst}
}

// call makes the calls of one caller until the end, at random: as many as are due by the clock,
// whatever the results of earlier ones.
func (n nodeTask) call(keys [2]*weir.Shared, caller int, file *os.File, over *atomic.Bool) error {
	random := rand.New(rand.NewPCG(n.Seed, uint64(caller)))
	each := nodeCallers * float64(time.Second) / (n.Hot + n.Rest)
	gap := func() time.Duration { return time.Duration(random.ExpFloat64() * each) }
	due := time.Now().Add(gap())
	timer := time.NewTimer(nodeTick)
	defer timer.Stop()
	for !over.Load() {
		now := time.Now()
		if now.Sub(due) > mostBehind {
			due = now.Add(-mostBehind)
		}
		for ; !due.After(now) && !over.Load(); due = due.Add(gap()) {
			e := record{}
			if random.Float64()*(n.Hot+n.Rest) > n.Hot {
				e.key = 1
			}
			if err := e.take(keys); err != nil {
				return err
			}
			if _, err := file.Write(e.bytes()); err != nil {
				return err
			}
		}
		timer.Reset(nodeTick)
		<-timer.C
	}
	return nil
}

// A record is the result of a call. It is written at once, because the admissions of a killed node
// count too.
type record struct {
	before, after int64 // on the clock that all processes share, in nanoseconds
	key           int   // 0 is the hot one, 1 the budget
	outcome       fate
}

type fate byte

const (
	wasRefused fate = iota
	wasAdmitted
	wasUnanswered
)

// take makes the call.
func (e *record) take(keys [2]*weir.Shared) error {
	ctx, cancel := context.WithTimeout(context.Background(), nodeDeadline)
	defer cancel()
	e.before = time.Now().UnixNano()
	d, err := keys[e.key].Take(ctx, "k", 1)
	e.after = time.Now().UnixNano()
	switch {
	case errors.Is(err, weirredis.ErrCharge):
		return fmt.Errorf("the call is wrong: %w", err)
	case err != nil:
		e.outcome = wasUnanswered
	case d.Allowed:
		e.outcome = wasAdmitted
	}
	return nil
}

// recordSize is the size of a record in bytes.
const recordSize = 18

func (e *record) bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, recordSize), uint64(e.before))
	b = binary.BigEndian.AppendUint64(b, uint64(e.after))
	return append(b, byte(e.outcome), byte(e.key))
}

// readLedger returns what a node has written. An incomplete last record was not used yet.
func readLedger(path string) ([]record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []record
	for ; len(b) >= recordSize; b = b[recordSize:] {
		all = append(all, record{
			before: int64(binary.BigEndian.Uint64(b)), after: int64(binary.BigEndian.Uint64(b[8:])),
			outcome: fate(b[16]), key: int(b[17]),
		})
	}
	return all, err
}
