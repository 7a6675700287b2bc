// Package sim replays access logs through a policy in virtual time. It uses the engine of the
// gateway, runs as fast as it can read the logs, and counts which requests the limits would have
// refused or delayed.
package sim
