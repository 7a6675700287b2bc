// Package memcached describes memcached as a product that the server keeps limits in, through weirmemcached.
package memcached

import (
	"strings"

	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weirmemcached"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.KV([]string{"memcached"}, "memcached://127.0.0.1:11211", weirmemcached.Open, func(url string) ([]string, string, error) {
		hosts, err := weirmemcached.ParseURL(url)
		// which server has a key depends on all of them
		return []string{strings.Join(hosts, "+")}, "memcached", err
	})
}
