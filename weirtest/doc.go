// Package weirtest holds what limiters are tested with: a reference model of each limit in exact fractions, a virtual clock, and the
// language of scripts in which what a limiter does in time is written down, with the runner behind `weir test`.
//
// Only tests and that command import it.
package weirtest
