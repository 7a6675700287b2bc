// Package weirtest contains tools for testing limiters: a reference model of each limit in exact
// fractions, a virtual clock, and the language of test scripts with its runner, which `weir test`
// uses.
//
// Only tests and that command import it.
package weirtest
