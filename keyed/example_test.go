package keyed_test

import (
	"fmt"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// Each address has a limit of its own, and no more than a million are kept.
func ExampleNew() {
	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(10), Burst: 2}, keyed.Options{MaxKeys: 1_000_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	for _, client := range []string{"203.0.113.7", "203.0.113.7", "203.0.113.7", "198.51.100.1"} {
		fmt.Println(client, l.Allow(client))
	}
	// Output:
	// 203.0.113.7 true
	// 203.0.113.7 true
	// 203.0.113.7 false
	// 198.51.100.1 true
}

// A request is charged to its user and to all users together, or to neither.
func ExampleGroup() {
	each, _ := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1}, keyed.Options{Name: "each"})
	all, _ := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2}, keyed.Options{Name: "all"})
	defer each.Close()
	defer all.Close()
	group, _ := keyed.NewGroup(each, all)
	for _, user := range []string{"ann", "ann", "bob", "cid"} {
		d, _ := group.Take([]keyed.Charge[string]{{Key: user, Cost: 1}, {Key: "", Cost: 1}})
		fmt.Println(user, d.Allowed, d.By)
	}
	// Output:
	// ann true each
	// ann false each
	// bob true each
	// cid false all
}
