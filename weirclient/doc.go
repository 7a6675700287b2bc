// Package weirclient calls a limit service: a server of `weir serve` with listen.http.
//
//	c, err := weirclient.New("http://127.0.0.1:8082", weirclient.Options{})
//	...
//	ok, err := c.Allow(ctx, "per-user", "ann")
//
// Take, Peek, Reserve, Usage and Explain are about the limits of the server's policy, by their names.
// Store is a weir.Store for limits that this program brings: weir.NewShared, failover and lease work
// over it, as they do over Redis.
package weirclient
