// Package resp is the Redis protocol as a face: redis-cell's CL.THROTTLE, the limits of the policy as
// WEIR.*, and what Redis clients send when they connect.
package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/endpoint"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/hook"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/server/policyfile"
)

// name is the word of this face below listen.
const name = "resp"

// Kind is the Redis protocol as a face.
func Kind() face.Kind { return face.Kind{Name: name, Open: open, Check: Check} }

// A Face serves the clients of one address. It is a part of the active policy, which names the file
// with its users.
type Face struct {
	policy       *active.Policy
	log          *slog.Logger
	endpoint     *endpoint.Endpoint
	tls          *tls.Config         // nil without TLS
	commands     map[string]*command // by name, in lower case
	backlogs     *keyed.Backlogs
	settings     atomic.Pointer[settings]
	named        *namedLimits
	hook         *hook.Decider
	reservations *outstanding.Table     // reservations of WEIR.RESERVE
	places       *outstanding.Places    // of WEIR.ENTER
	guesses      *keyed.Limiter[string] // of passwords, by user and client address
	counts       counts
	started      time.Time
	lastID       atomic.Int64

	mu       sync.Mutex
	conns    map[*conn]struct{}
	closing  bool // no more connections
	leaving  bool // clients that are idle are disconnected
	ended    chan struct{}
	accepted sync.WaitGroup
}

// settings are what the active policy says of this face. They are never changed.
type settings struct {
	store weir.Store // of CL.THROTTLE; nil for memory
	users *users     // nil where clients need none
}

func open(ctx context.Context, h face.Host) (face.Face, error) {
	o, _ := h.Policy.File().Policy.Listen.Endpoint(name)
	full := keyed.Evict
	if o.RESP.WhenFull == "refuse" {
		full = keyed.Refuse
	}
	f := &Face{policy: h.Policy, log: h.Log, commands: commands(), hook: hook.NewDecider(h.Log, longestTurn), reservations: outstanding.New(outstanding.Options{}), places: outstanding.NewPlaces(outstanding.Options{}), conns: map[*conn]struct{}{}, ended: make(chan struct{}), started: time.Now()}
	var err error
	if f.backlogs, err = keyed.NewBacklogs(keyed.Options{MaxKeys: o.RESP.MaxKeys, Full: full}); err != nil {
		return nil, err
	}
	if f.guesses, err = keyed.New[string](guessLimit, keyed.Options{MaxKeys: maxGuessers}); err != nil {
		return nil, err
	}
	if f.named, err = newNamedLimits(); err != nil {
		return nil, err
	}
	if err := h.Policy.Join(ctx, f); err != nil {
		return nil, err
	}
	if f.endpoint, err = endpoint.Open(ctx, h, name); err != nil {
		return nil, err
	}
	f.tls = f.endpoint.TLS()
	f.endpoint.UseLoops()
	f.endpoint.SetFarewell("-ERR max number of clients reached\r\n")
	if err := h.Metrics.Register(metrics{f}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Check returns what in a valid policy the face cannot serve.
func Check(file *policyfile.File) []policyfile.Problem {
	wrong := endpoint.Check(file, name)
	o, _ := file.Policy.Listen.Endpoint(name)
	store := o.RESP.Store
	for _, s := range file.Policy.Stores {
		if s.Name != store {
			continue
		}
		if store = ""; s.Regions != nil {
			wrong = append(wrong, file.Wrong("the store \""+s.Name+"\" has regions, and the limits of clients are not divided between regions", "name a store without regions, or take store out", "listen", name, "store"))
		}
	}
	if store != "" {
		wrong = append(wrong, file.Wrong("there is no store \""+store+"\"", "name one of stores, or take store out", "listen", name, "store"))
	}
	if o.RESP.Store != "" && (o.RESP.MaxKeys != 0 || o.RESP.WhenFull != "") {
		wrong = append(wrong, file.Wrong("max_keys and when_full are about keys in memory, and store keeps them elsewhere", "take them out, or store", "listen", name))
	}
	if o.Users == "" || file.Untrusted {
		return wrong
	}
	if _, err := readUsers(file.Beside(o.Users)); err != nil {
		wrong = append(wrong, file.Wrong("listen.resp.users: "+err.Error(), usersFix, "listen", name, "users"))
	}
	return wrong
}

// Prepare reads the users of the next policy.
func (f *Face) Prepare(_ context.Context, _ *active.Snapshot, next active.Candidate) (active.Change, error) {
	o, _ := next.File.Policy.Listen.Endpoint(name)
	c := &change{face: f, next: &settings{store: next.Stores[o.RESP.Store]}}
	for _, def := range next.File.Policy.Stores {
		if def.Name == o.RESP.Store {
			c.stores = []policy.Store{def}
		}
	}
	if o.Users != "" {
		all, err := readUsers(next.File.Beside(o.Users))
		if err != nil {
			return nil, &policyfile.InvalidError{Problems: []policyfile.Problem{next.File.Wrong("listen.resp.users: "+err.Error(), usersFix, "listen", name, "users")}}
		}
		c.next.users = all
	}
	return c, nil
}

// change is a face that is prepared for another policy.
type change struct {
	face   *Face
	next   *settings
	stores []policy.Store // of named limits: one, or none
}

// Commit puts the settings in force, for open connections too.
func (c *change) Commit(*active.Snapshot) {
	if old := c.face.settings.Swap(c.next); old != nil && old.users == nil && c.next.users != nil {
		c.face.awaitUsers()
	}
	if err := c.face.named.follow(c.stores, c.next.store); err != nil {
		c.face.log.Warn("the store cannot keep the named limits of clients: they are deleted", "listen", name, "error", err)
	}
}

// awaitUsers gives idle clients the time to authenticate: until now, the policy had no users.
func (f *Face) awaitUsers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.awaitUser()
	}
}

// Discard has nothing to give back.
func (c *change) Discard() {}

// Tick ends reservations and places that have expired, and reads certificates and users again if their files have changed.
func (f *Face) Tick() {
	f.endpoint.Tick()
	f.reservations.Sweep()
	f.places.Sweep()
	if err := f.named.expire(); err != nil {
		f.log.Error("named limits are not deleted", "listen", name, "error", err)
	}
	s := f.settings.Load()
	if s.users == nil {
		return
	}
	next, err := readUsers(s.users.path)
	switch {
	case err != nil && s.users.failed.CompareAndSwap(false, true):
		f.log.Error("users not read again: the old ones stay valid", "listen", name, "error", err)
	case err == nil && next.version != s.users.version:
		if f.settings.CompareAndSwap(s, &settings{s.store, next}) { // otherwise a new policy has replaced the users meanwhile
			f.log.Info("users read again", "listen", name)
		}
	}
}

// Addresses returns where the face listens.
func (f *Face) Addresses() []string { return []string{f.endpoint.Address()} }

// Bounds of pauses after an Accept that failed, for lack of file descriptors.
const (
	shortestPause = 5 * time.Millisecond
	longestPause  = time.Second
)

// Serve accepts clients, each in a goroutine of its own.
func (f *Face) Serve() error {
	pause := shortestPause
	for {
		raw, err := f.endpoint.Listener().Accept()
		if err == nil {
			pause = shortestPause
			f.serve(raw)
			continue
		}
		if f.isClosing() {
			<-f.ended
			return nil
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || errors.Is(err, net.ErrClosed) {
			return err
		}
		select { // too few file descriptors, for example
		case <-time.After(pause):
		case <-f.ended:
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

// serve serves a client in the background.
func (f *Face) serve(raw net.Conn) {
	c := f.newConn(raw)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		raw.Close()
		return
	}
	f.conns[c] = struct{}{}
	f.accepted.Add(1)
	c.start()
}

// remove forgets a client whose connection has ended.
func (f *Face) remove(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
	f.accepted.Done()
}

func (f *Face) isClosing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closing
}

// Leave accepts no more clients, and disconnects those that are idle. The Redis protocol has no word
// for "connect again": clients do so when their connection ends, most of them without an error if it
// ends between two commands.
func (f *Face) Leave(bool) {
	f.mu.Lock()
	f.closing, f.leaving = true, true
	all := make([]*conn, 0, len(f.conns))
	for c := range f.conns {
		all = append(all, c)
	}
	f.mu.Unlock()
	_ = f.endpoint.Listener().Close()
	for _, c := range all {
		c.leave(idleOnLeave)
	}
}

// Draining returns how many clients are connected.
func (f *Face) Draining() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// Shutdown ends each connection after the commands that were read from it.
func (f *Face) Shutdown(ctx context.Context) error {
	f.Leave(false)
	f.mu.Lock()
	for c := range f.conns {
		c.leave(0)
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		f.accepted.Wait()
		close(done)
	}()
	select {
	case <-done:
		f.places.Close()
		f.reservations.Close(ctx)
		f.end()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end lets Serve return.
func (f *Face) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.ended:
	default:
		close(f.ended)
	}
}

// Close ends all connections at once.
func (f *Face) Close() error {
	f.mu.Lock()
	f.closing = true
	for c := range f.conns {
		c.raw.Close()
	}
	f.mu.Unlock()
	err := f.endpoint.Listener().Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	f.accepted.Wait()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	f.places.Close()
	f.reservations.Close(ended)
	f.end()
	return errors.Join(err, f.backlogs.Close(), f.guesses.Close(), f.named.close())
}
