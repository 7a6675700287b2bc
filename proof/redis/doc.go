// Package redis holds shared limits in Redis to their rules, on servers that the tests start. It
// has no code but tests.
//
//	conform_test.go  the scripts decide as the reference model
//	faults_test.go   never over and exactly once, with eight processes, while something is done to the servers (sites_test.go); a table of it
//	leases_test.go   eight processes that lease: never over, nothing lost, nobody starved; a table of it
//	late_test.go     what comes after its expiry is not charged
//	linear_test.go   histories of many threads are linearizable, and a planted race is not
//	hostile_test.go  any key, and any value that is no state
//	expiry_test.go   a key expires when its state is idle
//	groups_test.go   groups are charged or not, in one slot and over several
//	cluster_test.go  one node is not all
//	paths_test.go    which calls it takes, and Close
//
//	go test -race ./redis                          # in the module proof
//	go test ./redis -v -run Faults -faults=60s     # the table, a minute each
//	go test ./redis -v -run Leases -leases=60s     # so for leases
package redis
