// Package etcd describes etcd as a product that the server keeps limits in, through weiretcd.
package etcd

import (
	"slices"
	"strings"

	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weiretcd"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.KV([]string{"etcd", "etcds"}, "etcd://127.0.0.1:2379", weiretcd.Open, func(url string) (hosts []string, rest string, err error) {
		c, err := weiretcd.ParseURL(url)
		for _, e := range c.Endpoints {
			_, host, _ := strings.Cut(e, "://")
			hosts = append(hosts, host)
		}
		slices.Sort(hosts)
		return hosts, "etcd", err
	})
}
