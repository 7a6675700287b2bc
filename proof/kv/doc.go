// Package kv holds the tests of weirkv over real servers: memcached, etcd and NATS JetStream. See its tests.
package kv
