// Package servers starts real servers on free loopback ports, and stops them, for tests and
// benchmarks. It does not import testing.
//
// A context bounds how long a server may take to be ready, not how long it lives: that is up to
// Stop. A server that is not installed is an error that names the Debian package. It needs a Unix.
package servers
