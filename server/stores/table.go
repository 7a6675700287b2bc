// Package stores finds the product that a store's URL is for. To add a store, write a package that
// describes it as a product.Product, hand its Store to weirtest.Conform, and add one line to table.
package stores

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores/cluster"
	"github.com/weirflow/weir/server/stores/etcd"
	"github.com/weirflow/weir/server/stores/memcached"
	"github.com/weirflow/weir/server/stores/mysql"
	"github.com/weirflow/weir/server/stores/nats"
	"github.com/weirflow/weir/server/stores/postgres"
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/server/stores/redis"
	"github.com/weirflow/weir/server/stores/sqlite"
)

// table has all products. No two have a scheme in common.
func table() []product.Product {
	return []product.Product{
		redis.Product(),
		memcached.Product(),
		etcd.Product(),
		nats.Product(),
		cluster.Product(),
		postgres.Product(),
		mysql.Product(),
		sqlite.Product(),
	}
}

// find returns the product that a URL is for. problem says why there is none; it never has a part
// of the URL but its scheme.
func find(url string) (p product.Product, problem *product.Problem) {
	products := table()
	scheme, _, found := strings.Cut(url, "://")
	if !found {
		scheme, _, found = strings.Cut(url, ":/") // of a file
	}
	if !found {
		return p, noScheme(url, products)
	}
	scheme = strings.ToLower(scheme)
	var known []string
	for _, p := range products {
		if slices.Contains(p.Schemes, scheme) {
			return p, nil
		}
		known = append(known, p.Schemes...)
	}
	fix := "write one of " + strings.Join(known, ", ")
	if near := nearest.To(scheme, known); near != "" {
		fix = fmt.Sprintf("did you mean %q?", near)
	}
	return p, &product.Problem{Field: "url", Message: fmt.Sprintf("%.40q is the scheme of no store", scheme), Fix: fix}
}

// noScheme says how a URL begins: as those of the product that is named before the colon, or of Redis.
func noScheme(url string, products []product.Product) *product.Problem {
	before, _, _ := strings.Cut(url, ":")
	for _, p := range products {
		if slices.Contains(p.Schemes, strings.ToLower(before)) {
			return &product.Problem{Field: "url", Message: fmt.Sprintf("the URL has no slash after %q", before+":"), Fix: "write it like " + p.Example}
		}
	}
	return &product.Problem{Field: "url", Message: "the URL has no scheme", Fix: "write it like " + products[0].Example}
}

// Check returns what is wrong with the URL and the prefix of a store. It connects to nothing.
func Check(def policy.Store) []product.Problem {
	p, problem := find(def.URL)
	switch {
	case problem != nil:
		return []product.Problem{*problem}
	case p.Check == nil:
		return nil
	}
	return p.Check(def)
}

// Locate returns where a store's URL leads.
func Locate(url string) policy.Place {
	p, problem := find(url)
	if problem != nil || p.Locate == nil {
		return policy.Place{Hosts: url}
	}
	return p.Locate(url)
}

// Keeps says why a limit cannot be kept in a store; nil where it can, and for a store whose URL is
// wrong. If regions cannot divide the limit, errors.Is finds regions.ErrLimit.
func Keeps(def policy.Store, l weir.Limit) error {
	p, problem := find(def.URL)
	if problem != nil {
		return nil
	}
	if p.Keeps != nil {
		if err := p.Keeps(l); err != nil {
			return err
		}
	}
	part, err := inRegion(def, l)
	if err != nil || p.Keeps == nil {
		return err
	}
	return p.Keeps(part)
}

// KeepsRooms reports whether waiting rooms can be kept in a store; true for a store whose URL is
// wrong.
func KeepsRooms(def policy.Store) bool {
	p, problem := find(def.URL)
	return problem != nil || p.Rooms
}

// RoomSchemes returns what the URLs of stores begin with that keep waiting rooms, before "://".
func RoomSchemes() (all []string) {
	for _, p := range table() {
		if p.Rooms {
			all = append(all, p.Schemes[0])
		}
	}
	return all
}

// KeepsRecords reports whether API keys can be kept in a store; true for a store whose URL is wrong.
func KeepsRecords(def policy.Store) bool {
	p, problem := find(def.URL)
	return problem != nil || p.Records
}

// IsPrompt reports whether calls of a store return when their contexts end, whatever its server
// does.
func IsPrompt(def policy.Store) bool {
	p, problem := find(def.URL)
	return problem == nil && p.Prompt
}

// Deadline returns how long a call of a store may take: as the policy says, or else as its product does; 0 for
// the default of package failover.
func Deadline(def policy.Store) time.Duration {
	if p, problem := find(def.URL); def.Deadline == 0 && problem == nil {
		return p.Deadline
	}
	return def.Deadline
}

// At returns the store as a process opens it, which was told which node it is, or "".
func At(def policy.Store, node string) (policy.Store, error) {
	p, problem := find(def.URL)
	if problem != nil || p.At == nil {
		return def, nil
	}
	var err error
	def.URL, err = p.At(def.URL, node)
	return def, err
}

// Nodes returns how many nodes the policy says that share a store, at least 1.
func Nodes(def policy.Store) int {
	if p, problem := find(def.URL); def.Nodes == 0 && problem == nil && p.Nodes != nil {
		return max(p.Nodes(def.URL), 1)
	}
	return max(def.Nodes, 1)
}

// Try returns why a store could not be opened.
func Try(def policy.Store, tag func(name, key string) string) error {
	if p, problem := find(def.URL); problem == nil && p.Try != nil {
		return p.Try(def)
	}
	s, err := Open(def, tag)
	if err == nil {
		_ = s.Close() // nothing was asked of it
	}
	return err
}

// Warn returns what is unwise about the files that a store's URL names.
func Warn(def policy.Store) []product.Problem {
	if p, problem := find(def.URL); problem == nil && p.Warn != nil {
		return p.Warn(def)
	}
	return nil
}

// Open opens a store, as product.Product.Open says.
func Open(def policy.Store, tag func(name, key string) string) (product.Store, error) {
	p, problem := find(def.URL)
	if problem != nil {
		return nil, fmt.Errorf("%s: %s: %s", problem.Field, problem.Message, problem.Fix)
	}
	return p.Open(def, tag)
}
