// Package fleet tests nodes that share limits: several real gateways, and several engines in one
// process, over a real redis-server, which the tests start, stop and suspend. A missing program is
// a failure that says what to install: apt install redis-server.
package fleet
