// Package room tests the waiting room: its queues in memory and in Redis are compared with a model,
// and two gateways share one queue.
package room
