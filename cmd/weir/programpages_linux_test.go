package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestProgramPages: pages of the program's file are given back, and what is needed again works as before.
func TestProgramPages(t *testing.T) {
	mapped := func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "RssFile:" {
				n, err := strconv.Atoi(f[1])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatalf("no RssFile in %s", status)
		return 0
	}
	before := mapped()
	if err := dropProgramPages(); err != nil {
		t.Fatal(err)
	}
	after := mapped()
	if t.Logf("%d kB of files were mapped, and %d are", before, after); after >= before {
		t.Errorf("%d kB of files were mapped, and %d are", before, after)
	}
	for range 3 { // also while others run what is given back
		done := make(chan error)
		go func() { done <- dropProgramPages() }()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestReadOnlyOf: nothing is given back that can be written, or that belongs to another file.
func TestReadOnlyOf(t *testing.T) {
	for line, want := range map[string][2]uintptr{
		"00400000-01f77000 r-xp 00000000 fe:00 123                        /usr/bin/weir":     {0x400000, 0x1f77000},
		"01f77000-03333000 r--p 01b77000 fe:00 123                        /usr/bin/weir":     {0x1f77000, 0x3333000},
		"03333000-0345a000 rw-p 02f33000 fe:00 123                        /usr/bin/weir":     {},
		"03333000-0345a000 -w-p 02f33000 fe:00 123                        /usr/bin/weir":     {},
		"03333000-0345a000 r--s 02f33000 fe:00 123                        /usr/bin/weir":     {},
		"7f0000000000-7f0000001000 r-xp 00000000 fe:00 9                  /lib/libc.so.6":    {},
		"7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                  [vdso]":            {},
		"0345a000-034c0000 rw-p 00000000 00:00 0":                                            {},
		"00400000-01f77000 r-xp 00000000 fe:00 123                        /usr/bin/weir.old": {},
		"01f77000-00400000 r-xp 00000000 fe:00 123                        /usr/bin/weir":     {},
		"xyz r-xp 00000000 fe:00 123                        /usr/bin/weir":                   {},
		"": {},
	} {
		first, last, ok := readOnlyOf(line, "/usr/bin/weir")
		if first != want[0] || last != want[1] || ok != (want[1] != 0) {
			t.Errorf("%s: %x %x %v", line, first, last, ok)
		}
	}
}
