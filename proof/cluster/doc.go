// Package cluster holds the tests of weircluster, and of gateways whose policy has a cluster. See its tests.
package cluster
