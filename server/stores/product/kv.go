package product

import (
	"errors"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirkv"
)

// leastTimeout is weirkv's default. A longer deadline of the policy lets calls wait for longer.
const leastTimeout = 2 * time.Second

// KV describes a product that can only compare and swap: weirkv decides. open opens a store at a URL, and parse
// returns its servers in any order, and what else says where its states are.
func KV[S Store](schemes []string, example string, open func(url string, o weirkv.Options) (S, error), parse func(url string) (hosts []string, rest string, err error)) Product {
	return Product{
		Schemes: schemes,
		Example: example,
		Open: func(def policy.Store, _ func(name, key string) string) (Store, error) {
			return open(def.URL, KVOptions(def))
		},
		Check: func(def policy.Store) (all []Problem) {
			if _, _, err := parse(def.URL); err != nil {
				all = append(all, WrongURL(err, example))
			}
			if err := weirkv.CheckPrefix(def.Prefix); err != nil {
				all = append(all, Problem{Field: "prefix", Message: strings.TrimPrefix(err.Error(), "weirkv: "), Fix: "leave it out, or end it with a colon, like shop:"})
			}
			return all
		},
		Locate: func(url string) policy.Place {
			hosts, rest, err := parse(url)
			if err != nil {
				return policy.Place{Hosts: url}
			}
			return policy.Place{Hosts: strings.Join(hosts, ","), Rest: rest}
		},
		Keeps: func(l weir.Limit) error {
			if _, ok := rules.PlacesOf(l); ok {
				return errors.New("only Redis keeps the places of concurrency: keep the limit in memory, or in a store with a URL like redis://")
			}
			return weirkv.Check(l)
		},
		Prompt: true,
	}
}

// KVOptions are those of weirkv for a store of a policy.
func KVOptions(def policy.Store) weirkv.Options {
	return weirkv.Options{Prefix: def.Prefix, Timeout: max(def.Deadline, leastTimeout)}
}
