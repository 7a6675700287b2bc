// Package kv holds the tests of weirkv over real servers: memcached, etcd, NATS JetStream and SQLite. See its tests.
package kv
