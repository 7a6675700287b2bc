// Package gateway holds proofs of the gateway with clients and servers of other makers, in one
// process: what needs their libraries.
package gateway
