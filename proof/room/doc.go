// Package room proves the waiting room: its lines in memory and in Redis beside a model, and two
// gateways with one line.
package room
