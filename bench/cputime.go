package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// statTick is the unit of the times in /proc/PID/stat, which is the same on every Linux that Go
// runs on.
const statTick = 10 * time.Millisecond

// cpuTime returns the CPU time of processes so far, in user and kernel mode, with all their
// threads. Its resolution is 10 ms.
func cpuTime(pids ...int) (sum time.Duration, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("the CPU time of a process is read from /proc, which only Linux has: %w", err)
		}
		spent, err := parseStat(string(text))
		if err != nil {
			return 0, err
		}
		sum += spent
	}
	return sum, nil
}

// parseStat reads the CPU time from a line of /proc/PID/stat: the 14th and 15th field. The second
// field is a name in parentheses that may contain anything.
func parseStat(text string) (time.Duration, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is not a line of /proc/PID/stat", text)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * statTick, err
}
