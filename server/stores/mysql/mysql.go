// Package mysql describes MariaDB and MySQL as a product that the server keeps limits in, through weirmysql.
package mysql

import (
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weirmysql"
)

// Product returns the description for the table of stores.
func Product() product.Product {
	return product.KV(weirmysql.Schemes(), "mysql://weir@127.0.0.1:3306/weir", weirmysql.Open, func(url string) (hosts []string, rest string, err error) {
		a, err := weirmysql.ParseURL(url)
		return []string{a.Host}, "mysql/" + a.Database, err
	})
}
