// Package nats describes NATS JetStream as a product that the server keeps limits in, through weirnats.
package nats

import (
	"net/url"
	"slices"

	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weirnats"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.KV([]string{"nats", "nats+tls"}, "nats://127.0.0.1:4222", weirnats.Open, func(address string) (hosts []string, rest string, err error) {
		servers, b, err := weirnats.ParseURL(address)
		for _, s := range servers {
			if u, err := url.Parse(s); err == nil {
				hosts = append(hosts, u.Host)
			}
		}
		slices.Sort(hosts)
		return hosts, "nats/" + b.Name, err
	})
}
