// Package room tests the waiting room: its queues in memory, Redis and PostgreSQL are compared with a model,
// and two gateways share one queue.
package room
