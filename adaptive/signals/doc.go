// Package signals reads what the machine, the container and the Go runtime still bear: CPU time,
// memory, pressure, disks, the run queue, file descriptors, the scheduler and the garbage collector.
//
//	m, err := signals.Open(signals.Options{})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.BBR{}, Signals: m})
//
// Open reads Linux: /proc, and the control groups (version 1, 2, or both) that say what a container
// may use. Elsewhere, module weirgopsutil fills the same Monitor.
//
// A signal that cannot be read is absent, with the reason, and is never 0.
package signals
