// Package pacing is what a client needs to stay within the limits of the servers that it calls. A
// Gate keeps to the pauses that a server asks for, to what it says remains of its limits, and to the rate
// that its refusals tell. Lines are the requests that wait, by priority. A Budget bounds retries, and a
// Throttle refuses requests while a server accepts too few of them. Latencies tell when a response is late.
// SharedPauses tells other processes of a pause, through a store.
package pacing
