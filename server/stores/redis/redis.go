// Package redis describes Redis as a product that the server keeps limits and waiting rooms in,
// through weirredis and the client rueidis.
package redis

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.Product{
		Schemes: weirredis.Schemes(),
		Example: "redis://127.0.0.1:6379/0",
		Open:    open,
		Check:   check,
		Locate:  locate,
		Keeps:   keeps,
		Prompt:  true,
		Rooms:   true,
		Records: true,
	}
}

// store is an open store. Its Connected, Ready, Warm, Ping and Beat are those of the embedded one.
type store struct {
	*weirrueidis.Store
	def     policy.Store
	records *records
}

func open(def policy.Store, tag func(name, key string) string) (product.Store, error) {
	s, err := weirrueidis.Open(def.URL, weirredis.Options{Prefix: def.Prefix, Tag: tag})
	if err != nil {
		return nil, err
	}
	return &store{s, def, newRecords(s, def.Prefix)}, nil
}

// Close ends calls in flight, and closes the client.
func (s *store) Close() error {
	s.records.close()
	return s.Store.Close()
}

// ClockSteps implements product.Clocked.
func (s *store) ClockSteps() (keys uint64, last time.Time) {
	steps := s.Store.ClockSteps()
	return steps.Keys, steps.Last
}

// Line opens the queue of a waiting room.
func (s *store) Line(name string, spec room.Spec) (room.Queue, error) {
	return NewQueue(s.Evaler(), spec, QueueOptions{Name: name, Prefix: s.def.Prefix, Deadline: s.def.Deadline})
}

func check(def policy.Store) (all []product.Problem) {
	var wrong *weirredis.URLError
	if _, err := weirredis.ParseURL(def.URL); errors.As(err, &wrong) {
		all = append(all, product.Problem{Field: "url", Message: wrong.Problem, Fix: wrong.Fix})
	}
	if strings.HasSuffix(def.Prefix, "limit:") || strings.HasSuffix(def.Prefix, "hold:") || strings.HasSuffix(def.Prefix, recordWord) {
		all = append(all, product.Problem{
			Field:   "prefix",
			Message: fmt.Sprintf("keys that begin with %q are also those of named limits, of concurrency or of API keys under a shorter prefix", def.Prefix),
			Fix:     "end it with another word, like " + def.Prefix + "shop:",
		})
	}
	return all
}

// keeps says why the scripts cannot decide about a limit.
func keeps(l weir.Limit) error {
	if places, ok := rules.PlacesOf(l); ok {
		if places.MaxHold != 0 && places.MaxHold < weirredis.MinHold {
			return fmt.Errorf("a max_hold of %v leaves no time for heartbeats: it is at least %v", places.MaxHold, weirredis.MinHold)
		}
		return nil
	}
	if err := weirredis.Check(l); err != nil {
		return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "weirredis: "), "weir: "))
	}
	return nil
}

// locate leaves out of a URL what does not matter to where states are: users, passwords, TLS and
// the parameters of the connection.
func locate(url string) policy.Place {
	a, err := weirredis.ParseURL(url)
	if err != nil {
		return policy.Place{Hosts: url}
	}
	hosts := slices.Sorted(slices.Values(a.Hosts))
	if a.Socket != "" {
		hosts = []string{"unix:" + a.Socket}
	}
	rest := "redis/" + strconv.Itoa(a.DB)
	if a.Mode == weirredis.Cluster {
		rest = "redis cluster"
	} else if a.Master != "" {
		rest = "redis master " + a.Master + "/" + strconv.Itoa(a.DB)
	}
	return policy.Place{Hosts: strings.Join(hosts, ","), Rest: rest, Slots: a.Mode == weirredis.Cluster}
}
