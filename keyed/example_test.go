package keyed_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// Each address has a limit of its own. At most a million addresses are kept.
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

// A request is charged to its user and to all users together, or to neither of them.
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

// An abusive client is banned for an hour, and a customer has a plan of its own.
func ExampleLimiter_Override() {
	l, _ := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(10), Burst: 2}, keyed.Options{})
	defer l.Close()
	_ = l.Override("203.0.113.7", keyed.Override{Deny: true, For: time.Hour})
	_ = l.Override("customer", keyed.Override{Limit: weir.TokenBucket{Rate: weir.PerMinute(1000), Burst: 50}})
	fmt.Println(l.Allow("203.0.113.7"), l.Take("customer", 40).Allowed, l.Take("somebody", 40).Allowed)
	l.Lift("203.0.113.7")
	fmt.Println(l.Allow("203.0.113.7"))
	// Output:
	// false true false
	// true
}

// Beyond a number of addresses, new ones share a limit by network, so a flood of addresses gets no
// more than its networks.
func ExampleNewSharing() {
	network := func(a netip.Addr) netip.Addr {
		p, _ := a.Prefix(24)
		return p.Addr()
	}
	l, _ := keyed.NewSharing(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1}, keyed.Options{MaxKeys: 2, Full: keyed.Share}, network)
	defer l.Close()
	for _, a := range []string{"192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "203.0.113.9"} {
		fmt.Println(a, l.Allow(netip.MustParseAddr(a)))
	}
	// Output:
	// 192.0.2.1 true
	// 192.0.2.2 true
	// 198.51.100.1 true
	// 198.51.100.2 false
	// 203.0.113.9 true
}

// Iterate over the fingerprints of the keys, or over the keys if the table stores them.
func ExampleLimiter_Keys() {
	l, _ := keyed.New[string](weir.FixedWindow{Limit: 5, Window: 24 * time.Hour}, keyed.Options{Keys: true})
	defer l.Close()
	l.Take("ann", 2)
	for key, d := range l.Keys() {
		fmt.Println(key, d.Remaining, "of", d.Limit)
	}
	// Output: ann 3 of 5
}
