package weirredis

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rediserror"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/scripted"
	"github.com/weirflow/weir/internal/snake"
)

// Named is limits that are kept in Redis with their parameters: clients in any language obey the
// same ones, and operators change them at run time. Arguments and answers of the script are text:
// docs/redis.md shows them with redis-cli. All methods are safe for concurrent use.
//
// Init makes a limit. Its name has up to 128 lower-case letters, digits, dots, dashes and
// underscores. All states of a limit are in one slot of a cluster: one limit is as fast as one
// node. A change of parameters keeps what was used; of a client, when its next call comes.
type Named struct{ store *Store }

// NewNamed returns the named limits of a store: those of its Prefix.
func NewNamed(s *Store) *Named { return &Named{s} }

// A Scope says what shares the state of a named limit.
type Scope string

// The scopes of named limits.
const (
	Overall   Scope = "overall"    // all clients together
	PerClient Scope = "per_client" // each client for itself
)

// ErrNoLimit is found by errors.Is in an error about a named limit that does not exist.
var ErrNoLimit = errors.New("weirredis: there is no such limit")

var limitName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// CheckName returns why a text is not the name of a limit; nil if it is one.
func CheckName(name string) error {
	if !limitName.MatchString(name) {
		return fmt.Errorf("%.200q is no name of a limit: it has 1 to 128 lower-case letters, digits, dots, dashes and underscores, and begins with a letter or digit", name)
	}
	return nil
}

// maxClient is how long the name of a client may be, in bytes.
const maxClient = 512

// keys returns the keys of a limit, and of its client unless that is empty.
func (n *Named) keys(name, client string) (keys []string, err error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCharge, err)
	}
	if len(client) > maxClient {
		return nil, fmt.Errorf("%w: the name of a client has %d bytes: it may have %d", ErrCharge, len(client), maxClient)
	}
	at := n.store.opts.Prefix + namedPrefix + "{" + name + "}"
	keys = []string{at, at + ":state"}
	if client != "" {
		keys = append(keys, at+":client:"+client)
	}
	return keys, nil
}

// registry is the key of the names of all limits.
func (n *Named) registry() []string { return []string{n.store.opts.Prefix + "{limits}"} }

// CheckNamed returns why a limit cannot be a named one; nil if it can. Redis knows no time zones,
// so calendars are refused.
func CheckNamed(l weir.Limit) error {
	if err := Check(l); err != nil {
		return err
	}
	for _, part := range weir.Parts(l) {
		if w, ok := rules.ParamsOf(part).(rules.Calendared); ok && w.CalendarAlign() != "" {
			return fmt.Errorf("weirredis: align %q: named limits know no calendars", w.CalendarAlign())
		}
	}
	return nil
}

// Init makes a limit, or changes its parameters and keeps what was used. It reports whether the
// limit is new. To change its scope, delete the limit first. A limit with a calendar cannot be
// named, as Redis knows no time zones.
func (n *Named) Init(ctx context.Context, name string, l weir.Limit, scope Scope) (created bool, err error) {
	keys, err := n.keys(name, "")
	if err != nil {
		return false, err
	}
	if err := CheckNamed(l); err != nil {
		return false, fmt.Errorf("%w: limit %q: %w", ErrCharge, name, err)
	}
	c, err := n.store.limits.Of(l, compile)
	if err != nil {
		return false, fmt.Errorf("%w: limit %q: %w", ErrCharge, name, err)
	}
	if _, err := n.call(ctx, n.registry(), "register", name); err != nil {
		return false, err
	}
	args := []string{"define", string(scope), weir.Algorithm(l), strconv.FormatInt(min(c.capacity, most), 10), c.def}
	r, err := n.call(ctx, keys, append(args, fieldsOf(l)...)...)
	if err != nil {
		return false, err
	}
	created = r.int() == 1
	return created, r.err
}

// Take charges a cost to a limit if it may go now. A limit per client needs the client's name; a
// limit for all ignores it. A call that has to be repeated is charged once.
func (n *Named) Take(ctx context.Context, name, client string, cost int64) (weir.Decision, error) {
	return n.take(ctx, "take", name, client, cost)
}

// Peek returns the decision that Take would return, and charges nothing.
func (n *Named) Peek(ctx context.Context, name, client string, cost int64) (weir.Decision, error) {
	return n.take(ctx, "peek", name, client, cost)
}

func (n *Named) take(ctx context.Context, op, name, client string, c int64) (weir.Decision, error) {
	keys, err := n.keys(name, client)
	if err != nil {
		return weir.Decision{}, err
	}
	if c < 0 {
		return weir.Decision{RetryAfter: weir.Never, By: name, Source: weir.SourceStore}, nil
	}
	args := []string{op, strconv.FormatInt(scripted.Cost(c), 10)}
	if op == "take" {
		keys, args = append(keys, keys[0]+":nonce:"+hex.EncodeToString([]byte(n.store.id()))), append(args, "")
	}
	sent := time.Now()
	r, err := n.call(ctx, keys, args...)
	if err != nil {
		return weir.Decision{}, err
	}
	r.array()
	allowed, capacity, remaining, wait, reset, now := r.int(), r.int(), r.int(), r.int(), r.int(), r.int()
	if r.err != nil {
		return weir.Decision{}, r.err
	}
	n.store.clock.see(now, sent)
	return weir.Decision{
		Allowed:    allowed == 1,
		Limit:      capacity,
		Remaining:  remaining,
		RetryAfter: scripted.Span(wait),
		ResetAfter: scripted.Span(reset),
		By:         name,
		Source:     weir.SourceStore,
	}, nil
}

// A NamedLimit is a named limit and its state.
type NamedLimit struct {
	Name       string
	Algorithm  string // as in token_bucket
	Scope      Scope
	Parameters map[string]string // as text: "rate" is "100/s"
	Limit      int64
	Clients    int64 // of a limit per client: how many have used something

	// The state of a limit for all, or of the client that was named.
	Used, Remaining int64
	ResetAfter      time.Duration
}

// Inspect returns a limit and its state. For a limit per client, the state is that of the named
// client.
func (n *Named) Inspect(ctx context.Context, name, client string) (NamedLimit, error) {
	all := NamedLimit{Name: name, Parameters: map[string]string{}}
	keys, err := n.keys(name, client)
	if err != nil {
		return all, err
	}
	r, err := n.call(ctx, keys, "inspect")
	if err != nil {
		return all, err
	}
	whole := map[string]*int64{"capacity": &all.Limit, "clients": &all.Clients, "used": &all.Used, "remaining": &all.Remaining, "reset_us": new(int64)}
	for range r.array() / 2 {
		switch name, value := r.string(), r.string(); {
		case name == "algorithm":
			all.Algorithm = value
		case name == "scope":
			all.Scope = Scope(value)
		case whole[name] == nil:
			all.Parameters[name] = value
		default:
			if *whole[name], err = strconv.ParseInt(value, 10, 64); err != nil {
				return all, errAnswer
			}
		}
	}
	all.ResetAfter = scripted.Span(*whole["reset_us"])
	return all, r.err
}

// Clients returns the names of clients whose state is not full: count of them, at most 1000, after
// the first offset. They are in the order in which they will be full.
func (n *Named) Clients(ctx context.Context, name string, offset, count int) ([]string, error) {
	keys, err := n.keys(name, "")
	if err != nil {
		return nil, err
	}
	return n.texts(ctx, keys, "clients", strconv.Itoa(offset), strconv.Itoa(count))
}

// List returns names of limits in alphabetical order: count of them, at most 1000, after the given
// one; from the first on if that is empty.
func (n *Named) List(ctx context.Context, after string, count int) ([]string, error) {
	return n.texts(ctx, n.registry(), "list", after, strconv.Itoa(count))
}

func (n *Named) texts(ctx context.Context, keys []string, args ...string) (all []string, err error) {
	r, err := n.call(ctx, keys, args...)
	if err != nil {
		return nil, err
	}
	for range r.array() {
		all = append(all, r.string())
	}
	return all, r.err
}

// Delete removes a limit with its states. It is no error if the limit does not exist.
func (n *Named) Delete(ctx context.Context, name string) error {
	keys, err := n.keys(name, "")
	if err != nil {
		return err
	}
	for left := int64(1); left > 0; {
		r, err := n.call(ctx, keys, "delete")
		if err != nil {
			return err
		}
		if left = r.int(); r.err != nil {
			return r.err
		}
	}
	_, err = n.call(ctx, n.registry(), "unregister", name)
	return err
}

// call runs the script, with retries where they may help, and returns its answer. The last argument
// of a take is its expiry.
func (n *Named) call(ctx context.Context, keys []string, args ...string) (*reader, error) {
	s := n.store
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	end := time.Now().Add(s.opts.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	c := Call{Script: s.scripts.named(), Keys: keys, Args: append([]string{"pack"}, args...)}
	timed, unsure := args[0] == "take", false
	for tries := 0; ; tries++ {
		if timed && !unsure {
			c.Args[3] = strconv.FormatInt(s.clock.expiry(end), 10)
		}
		text, err := s.evaler.Eval(ctx, c)
		if err == nil {
			return &reader{b: text}, nil
		}
		switch code := err.Error(); {
		case s.ctx.Err() != nil:
			return nil, errClosed
		case strings.HasPrefix(code, "NOSCRIPT"):
			c.Send = true
			continue
		case strings.HasPrefix(code, "WEIRLATE ") && !unsure:
			if s.learn(code) && ctx.Err() == nil {
				continue
			}
		case rediserror.Passing(err):
			unsure = true
			if s.pause(ctx, tries); ctx.Err() == nil {
				continue
			}
		}
		return nil, refusedCall(err)
	}
}

// learn sets the estimate of the server's clock from a refusal.
func (s *Store) learn(text string) bool {
	now, err := strconv.ParseInt(strings.TrimPrefix(text, "WEIRLATE "), 10, 64)
	if err == nil {
		s.clock.set(now)
	}
	return err == nil
}

// refusedCall is the error of a call that the script did not carry out, or that was not answered.
func refusedCall(err error) error {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "WEIRNONE"):
		return fmt.Errorf("%w: %w", ErrNoLimit, err)
	case rediserror.Passing(err):
		return fmt.Errorf("weirredis: no reply: %w", err)
	case strings.HasPrefix(text, "WEIRLATE"):
		return errors.New("weirredis: no reply in time: the charge may have been carried out or not")
	case strings.HasPrefix(text, "WEIR"), strings.HasPrefix(text, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrCharge, err)
	}
	return fmt.Errorf("weirredis: %w", err)
}

// fieldsOf returns the parameters of a limit as people write them, without those left out; of an
// All, its parts.
func fieldsOf(l weir.Limit) (fields []string) {
	if names := weir.PartNames(l); names != nil {
		for i, part := range weir.Parts(l) {
			fields = append(fields, fmt.Sprintf("part_%d=%s %s", i+1, weir.Algorithm(part), strings.Join(fieldsOf(part), " ")))
		}
		return fields
	}
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			fields = append(fields, snake.Case(v.Type().Field(i).Name)+"="+fmt.Sprint(f.Interface()))
		}
	}
	return fields
}

//go:embed lua/named.lua
var namedLua string

// NamedScript returns the script of named limits, which clients in other languages load: see
// docs/redis.md.
func NamedScript() *Script { return (&scripts{clock: timeLine}).named() }

// named is the script of Named: all algorithms, mainLua, and the part that reads text.
func (s *scripts) named() *Script {
	const key = "named"
	if made, ok := s.made.Load(key); ok {
		return made.(*Script)
	}
	body := strings.TrimSuffix(s.source(full), mainLua())
	source := "-- The named limits of Weir, put together from the files of weirredis/lua. docs/redis.md says how they are used.\n" +
		// a function has room for 200 names
		body + "local function decide(KEYS, ARGV)\n" + mainLua() + "end\nlocal function named()\n" + namedLua + "end\nreturn named()\n"
	made, _ := s.made.LoadOrStore(key, newScript(source))
	return made.(*Script)
}
