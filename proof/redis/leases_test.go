package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	leasing "github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// A fleet is nodes that lease from one server.
type fleet struct {
	server *servers.RedisServer
	task   nodeTask
	nodes  []*worker
	files  []string
	skewed bool // the first node has 90 % of the demand; otherwise all have the same

	began  int64 // when the nodes began
	losses int   // how often the server lost its data
	killed int   // how many nodes were killed
	silent []silence
}

// A silence is a time in which nothing may be admitted at a node; below zero: at any node.
type silence struct {
	node     int
	from, to int64
	why      string
}

// leaseRows is the table: what happens while the nodes work.
var leaseRows = []struct {
	name                    string
	skewed, window, persist bool
	during                  func(f *fleet, ctx context.Context) error
}{
	{name: "one node has 90 % of the demand", skewed: true},
	{name: "the same of a window", skewed: true, window: true},
	{name: "all ask for the same"},
	{name: "a node is killed", during: (*fleet).kill},
	{name: "the hot node is stopped and resumed, and the server too", skewed: true, during: (*fleet).stop},
	{name: "a node leaves", during: (*fleet).leave},
	{name: "the server is killed, and restarted with its data", skewed: true, persist: true, during: (*fleet).restart},
	{name: "the server is killed, and restarted without", during: (*fleet).wipe},
}

const (
	leaseNodes = 8
	overload   = 2.0 // the demand, relative to the rate
	restDemand = 800 // calls for the budget per second, of all nodes
)

// TestLeases: eight processes lease a hot key from one server, and a budget that is used up on the
// way. Their admissions stay within the bound of docs/guarantees.md, in the whole time and in each
// interval of it. The charges equal the admissions, except for known losses. A node with little
// demand is not starved. Leased tokens expire in time, also while a node is stopped.
func TestLeases(t *testing.T) {
	table := []string{
		"| what happens | calls, hot key | admitted | bound | of that | worst interval, of its bound | calls a round trip | of its calls the first node was admitted | of theirs the others | budget | admitted | charged | not answered, or lost |",
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
	}
	for _, row := range leaseRows {
		t.Run(row.name, func(t *testing.T) {
			f := &fleet{server: servers.StartRedis(t, servers.RedisOptions{Persist: row.persist}), skewed: row.skewed}
			f.task = nodeTask{Addr: f.server.Addr, Budget: int64(.5 * restDemand * leasesFor.Seconds()), Window: row.window}
			line := f.run(t, row.during)
			table = append(table, "| "+row.name+" | "+line+" |")
		})
	}
	t.Logf("%d processes, for %v each; the hot key: %T%+v, or %T%+v, asked for %v times as often as that; lifetime %v\n\n%s\n", leaseNodes, *leasesFor, hotBucket, hotBucket, hotWindow, hotWindow, overload,
		leasing.DefaultLifetime, strings.Join(table, "\n"))
}

// share returns the part of the demand that a node has.
func (f *fleet) share(node int) float64 {
	switch {
	case !f.skewed:
		return 1. / leaseNodes
	case node == 0:
		return .9
	}
	return .1 / (leaseNodes - 1)
}

// run has the nodes work while something happens, and compares their ledgers with the bounds and
// with the server.
func (f *fleet) run(t *testing.T, during func(*fleet, context.Context) error) string {
	ctx, cancel := context.WithTimeout(t.Context(), *leasesFor+4*patience)
	defer cancel()
	if err := f.start(ctx, t); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(*leasesFor)
	if during != nil {
		if err := during(f, ctx); err != nil {
			t.Fatal(err)
		}
	}
	pass(ctx, time.Until(end))
	for _, w := range f.nodes {
		w.tell.Close()
	}
	var total leasing.Stats
	for i, w := range f.nodes {
		if w == nil || w.killed {
			continue
		}
		r, err := reportOf[nodeReport](w)
		if err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		for _, wrong := range r.Wrong {
			t.Errorf("node %d: %s", i, wrong)
		}
		total.RoundTrips, total.Leased = total.RoundTrips+r.Stats.RoundTrips, total.Leased+r.Stats.Leased
		total.Returned, total.Lost = total.Returned+r.Stats.Returned, total.Lost+r.Stats.Lost
	}
	if total.Leased == 0 { // one node on a busy machine may have had too few calls
		t.Error("nothing was leased")
	}
	if t.Failed() {
		t.FailNow()
	}
	c := f.counted(t)
	if f.task.Window {
		f.windows(t, c)
	} else {
		f.bucket(t, c)
	}
	f.fair(t, c, during == nil)
	return c.line(total) + f.budget(ctx, t, c, total)
}

// start starts the nodes.
func (f *fleet) start(ctx context.Context, t *testing.T) error {
	dir, random := t.TempDir(), seeds.Of(t.Name())
	for i := range leaseNodes {
		n := f.task
		n.Seed, n.Ledger = random.Uint64(), filepath.Join(dir, fmt.Sprint(i))
		n.Hot = overload * float64(hotBucket.Rate.N) * f.share(i)
		n.Rest = restDemand * f.share(i)
		w, err := hire(ctx, leaseNode, n)
		if err != nil {
			return err
		}
		t.Cleanup(w.end)
		f.nodes, f.files = append(f.nodes, w), append(f.files, n.Ledger)
	}
	for i, w := range f.nodes {
		if err := w.ready(); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	f.began = time.Now().UnixNano()
	for _, w := range f.nodes {
		if _, err := io.WriteString(w.tell, begin); err != nil {
			return err
		}
	}
	return nil
}

// kill kills a node. The tokens that it holds are lost.
func (f *fleet) kill(ctx context.Context) error {
	pass(ctx, *leasesFor/3)
	w := f.nodes[1]
	w.killed = true
	f.killed++
	err := w.cmd.Process.Kill()
	_ = w.wait() // its error says that it was killed
	return err
}

// leave shuts a node down. The others find the tokens that it held.
func (f *fleet) leave(ctx context.Context) error {
	pass(ctx, *leasesFor/3)
	return f.nodes[1].tell.Close()
}

// stop stops the hot node while it holds tokens, for longer than their lifetime. Then the server is
// stopped too, so that there are no new tokens, and the node continues: it has none. A lifetime
// later, no node has any.
func (f *fleet) stop(ctx context.Context) error {
	const more = 150 * time.Millisecond // for a signal to arrive, and for a request for tokens
	pass(ctx, *leasesFor/4)
	hot := f.nodes[0].cmd.Process
	if err := hot.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pass(ctx, leasing.DefaultLifetime+more)
	if err := f.server.Pause(); err != nil {
		return errors.Join(err, hot.Signal(syscall.SIGCONT))
	}
	stands := time.Now().UnixNano()
	err := hot.Signal(syscall.SIGCONT)
	pass(ctx, leasing.DefaultLifetime+more)
	goesOn := time.Now().UnixNano()
	f.server.Resume()
	f.silent = []silence{
		{0, stands, goesOn, "it was stopped for longer than a lifetime"},
		{-1, stands + int64(leasing.DefaultLifetime), goesOn, "the server stood for longer than a lifetime"},
	}
	return err
}

func (f *fleet) restart(ctx context.Context) error {
	pass(ctx, *leasesFor/3)
	return restart(ctx, f.server)
}

func (f *fleet) wipe(ctx context.Context) error {
	f.losses++
	return f.restart(ctx)
}

// budget compares the server's charges to the budget, after all nodes have returned what they had.
func (f *fleet) budget(ctx context.Context, t *testing.T, c *counts, total leasing.Stats) string {
	client, err := task{Addrs: []string{f.server.Addr}}.client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store, err := weirrueidis.New(client, patiently(weirredis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	keys, err := f.task.keys(store)
	if err != nil {
		t.Fatal(err)
	}
	d, err := keys[1].Peek(ctx, "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	used := d.Limit - d.Remaining
	got, unsure := c.budget[wasAdmitted], c.budget[wasUnanswered]+int64(total.Lost)+int64(f.killed*mostHeld)
	if used > got+unsure || used < got && f.losses == 0 {
		t.Errorf("of the budget %d were admitted and %d may have been charged for nothing; the server charged %d", got, unsure, used)
	}
	if most := f.task.Budget * int64(1+f.losses); got > most {
		t.Errorf("%d of a budget of %d were admitted", got, most)
	}
	return fmt.Sprintf(" | %d | %d | %d | %d", f.task.Budget, got, used, c.budget[wasUnanswered]+int64(total.Lost))
}
