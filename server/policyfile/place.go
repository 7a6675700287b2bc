package policyfile

import (
	"fmt"
	"slices"
	"strings"
)

// Place says where in the file a line KEY: VALUE belongs: which lines it replaces if the map at the path
// has that key already, and otherwise where it is added. path ends with the key.
//
// ignore_case of a route stands for a part of its paths, which the line has in full.
func (f *File) Place(line string, path ...string) string {
	parent, key := f.root.find(path[:len(path)-1]), path[len(path)-1]
	if parent == nil {
		return line
	}
	replaces, removal := key, ""
	if short := parent.own("ignore_case"); key == "paths" && short != nil {
		if parent.own("paths") == nil {
			replaces = short.name
		} else {
			removal = fmt.Sprintf("remove ignore_case in line %d, and ", short.line)
		}
	}
	below := parent.line
	for _, known := range slices.Concat(parent.fields, parent.empty) {
		if known.merged { // it belongs to another map, too
			continue
		}
		if known.name == replaces {
			return fmt.Sprintf("%sreplace %s in %s with: %s", removal, replaces, f.linesOf(known), line)
		}
		if known.name == "match" { // of a route: what is said of it stands there
			below = known.line
		}
	}
	if f.begins(parent, "{") {
		return fmt.Sprintf("add after the brace of line %d, column %d: %s,", parent.line, parent.col, line)
	}
	return fmt.Sprintf("add below line %d: %s", below, line)
}

// own returns a key that the map itself has, and not one that it is merged with; nil for none.
func (n *node) own(name string) *field {
	for i := range n.fields {
		if f := &n.fields[i]; f.name == name && !f.merged {
			return f
		}
	}
	return nil
}

// linesOf returns the lines of a key and its value.
func (f *File) linesOf(of field) string {
	last := of.line
	if of.value != nil {
		last = max(last, of.value.lastLine())
	}
	if f.begins(of.value, "{") {
		lines := strings.Split(string(f.Data), "\n")
		if i := slices.IndexFunc(lines[last-1:], func(line string) bool { return strings.Contains(line, "}") }); i > 0 {
			last += i
		}
	}
	if last > of.line {
		return fmt.Sprintf("lines %d to %d", of.line, last)
	}
	return fmt.Sprintf("line %d", of.line)
}

// begins reports whether a value begins with a text in the file.
func (f *File) begins(n *node, text string) bool {
	lines := strings.Split(string(f.Data), "\n")
	if n == nil || n.line < 1 || n.line > len(lines) {
		return false
	}
	line := []rune(lines[n.line-1])
	return n.col >= 1 && n.col <= len(line) && strings.HasPrefix(string(line[n.col-1:]), text)
}
