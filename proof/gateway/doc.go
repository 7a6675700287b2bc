// Package gateway tests the gateway in one process with clients and servers of other projects, for
// tests that need their libraries.
package gateway
