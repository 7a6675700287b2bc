// Package sqlite describes a file as a product that the server keeps limits in, through weirsqlite.
package sqlite

import (
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weirsqlite"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.KV([]string{"sqlite"}, "sqlite:/var/lib/weir/limits.db", weirsqlite.Open, func(url string) (hosts []string, rest string, err error) {
		c, err := weirsqlite.ParseURL(url)
		return []string{c.Path}, "sqlite", err
	})
}
