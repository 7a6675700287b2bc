// Package postgres describes PostgreSQL as a product that the server keeps limits and waiting rooms in, through
// weirsql and the driver pgx.
package postgres

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.Product{
		Schemes: []string{"postgres", "postgresql"},
		Example: "postgres://weir@127.0.0.1:5432/weir",
		Open:    open,
		Check:   check,
		Locate:  locate,
		Keeps:   keeps,
		Prompt:  true,
		Rooms:   true,
	}
}

// store is an open store. Its Connected, Ready, Ping, Beat and Inexact are those of the embedded one.
type store struct {
	*weirpgx.Store
	def     policy.Store
	durable bool

	mu    sync.Mutex
	rooms map[string]weirsql.Querier // by the name of the room
	close []func()                   // of their connections
}

// open ignores tags: all keys are on one server.
func open(def policy.Store, _ func(name, key string) string) (product.Store, error) {
	a, err := weirpgx.ParseURL(def.URL)
	if err != nil {
		return nil, err
	}
	s, err := weirpgx.Open(def.URL, weirsql.Options{Prefix: def.Prefix})
	if err != nil {
		return nil, err
	}
	return &store{Store: s, def: def, durable: a.Durable, rooms: map[string]weirsql.Querier{}}, nil
}

// roomConnections is how many connections a room has: one poll is carried out while the next one is on its way.
const roomConnections = 2

// Line opens the queue of a waiting room. Each room has connections of its own, which stay open while the policy
// is reloaded: limits and other rooms do not wait for it.
func (s *store) Line(name string, spec room.Spec) (room.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[name] == nil {
		q, end, err := s.Separate(roomConnections)
		if err != nil {
			return nil, err
		}
		s.rooms[name], s.close = q, append(s.close, end)
	}
	return NewQueue(s.rooms[name], spec, QueueOptions{Schema: s.Schema(), Name: name, Prefix: s.def.Prefix, Durable: s.durable, Deadline: s.def.Deadline})
}

// Close ends calls in flight, and closes the connections.
func (s *store) Close() error {
	s.mu.Lock()
	all := s.close
	s.rooms, s.close = nil, nil
	s.mu.Unlock()
	for _, end := range all {
		end()
	}
	return s.Store.Close()
}

// ClockSteps implements product.Clocked.
func (s *store) ClockSteps() (keys uint64, last time.Time) {
	steps := s.Store.ClockSteps()
	return steps.Keys, steps.Last
}

func check(def policy.Store) []product.Problem {
	if _, err := weirpgx.ParseURL(def.URL); err != nil {
		return []product.Problem{product.WrongURL(err, Product().Example)}
	}
	if err := weirsql.CheckPrefix(def.Prefix); err != nil {
		return []product.Problem{{Field: "prefix", Message: strings.TrimPrefix(err.Error(), "weirsql: "), Fix: "leave it out, or write letters, like shop:"}}
	}
	return nil
}

// keeps says why the functions cannot decide about a limit.
func keeps(l weir.Limit) error {
	if _, ok := rules.PlacesOf(l); ok {
		return errors.New("the places of a concurrency limit cannot be kept in PostgreSQL: keep them in Redis, or leave out store")
	}
	if err := weirsql.Check(l); err != nil {
		return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "weirsql: "), "weir: "))
	}
	return nil
}

// locate leaves out of a URL what does not matter to where states are: users, passwords, TLS and the
// parameters of the connection.
func locate(url string) policy.Place {
	a, err := weirpgx.ParseURL(url)
	if err != nil {
		return policy.Place{Hosts: url}
	}
	schema := a.Schema.Name
	if schema == "" {
		schema = "weir"
	}
	return policy.Place{Hosts: strings.Join(slices.Sorted(slices.Values(a.Hosts)), ","), Rest: "postgres/" + a.Database + "/" + schema}
}
