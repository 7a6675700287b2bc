package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dropProgramPages gives back the pages of the program's file that are mapped: what ran once, at the start, is most of
// them, and the kernel maps 16 pages for each that is touched. Those that are needed again are mapped again, from the
// kernel's cache of files. Only pages that nothing can write are given back.
func dropProgramPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		first, last, ok := readOnlyOf(lines.Text(), program)
		if !ok {
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, first, last-first, syscall.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return lines.Err()
}

// readOnlyOf reads a line of /proc/self/maps. It reports whether the line is about a part of a file that cannot be
// written, and returns its addresses.
func readOnlyOf(line, file string) (first, last uintptr, ok bool) {
	f := strings.Fields(line) // addresses, permissions, offset, device, inode, path
	if len(f) < 6 || f[5] != file || len(f[1]) < 4 || f[1][0] != 'r' || f[1][1] != '-' || f[1][3] != 'p' {
		return 0, 0, false
	}
	from, to, ok := strings.Cut(f[0], "-")
	a, err := strconv.ParseUint(from, 16, 64)
	b, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err != nil || err2 != nil || a >= b {
		return 0, 0, false
	}
	return uintptr(a), uintptr(b), true
}
