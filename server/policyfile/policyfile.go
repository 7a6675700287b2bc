// Package policyfile reads a policy from YAML. It reports all problems of a file at once, each with
// its line, its column and a fix.
package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/regular"
	"github.com/weirflow/weir/policy"
)

// A File is a policy file after reading.
type File struct {
	Path   string
	Data   []byte // the text of the file
	Policy policy.Policy
	// the contents of the files with responses that the policy names, by name
	Bodies   map[string][]byte
	Problems []Problem // only warnings, unless Load returned an error

	// by the name of the upstream, for upstreams with TLS settings
	UpstreamTLS map[string]UpstreamTLS
	APIKeys     *APIKeys // nil without plans.api_keys

	// read by ParseWithValues: the program gives values to requests
	Values bool

	// read by ParseText: the sender must not learn about files of this machine
	Untrusted bool

	root *node  // nil if the text is not YAML
	only string // the one section whose problems count; empty for all
}

// Beside returns the path of a file that the policy names. A relative name is relative to the
// directory of the policy file.
func (f *File) Beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(f.Path), name)
}

// Has reports whether the file has a value at a path of keys and indexes, such as "listen",
// "gateway".
func (f *File) Has(path ...string) bool {
	return f.root.find(path) != nil
}

// HasErrorIn reports whether Load found an error in the value at a path: what a check beyond those of
// Load finds there may only follow from it.
func (f *File) HasErrorIn(path ...string) bool {
	n := f.root.find(path)
	if n == nil {
		return false
	}
	first, _ := f.root.at(path)
	last := n.lastLine()
	return slices.ContainsFunc(f.Problems, func(p Problem) bool { return !p.Warning && p.Line >= first && p.Line <= last })
}

// Wrong returns an error at a path of keys and indexes, for checks beyond those of Load.
func (f *File) Wrong(message, fix string, path ...string) Problem {
	line, col := f.root.at(path)
	return Problem{f.Path, line, col, message, fix, false}
}

// A Problem is an error or a warning about a file.
type Problem struct {
	File      string
	Line, Col int
	Message   string
	Fix       string // what to write instead; may be empty
	Warning   bool   // the policy works nevertheless
}

// String has the form FILE:LINE:COL: error: MESSAGE. The fix follows on a line of its own.
func (p Problem) String() string {
	severity := "error"
	if p.Warning {
		severity = "warning"
	}
	s := fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Col, severity, p.Message)
	if p.Fix != "" {
		s += "\n\tfix: " + p.Fix
	}
	return s
}

// InvalidError is the error for a file that is not a valid policy.
type InvalidError struct{ Problems []Problem }

// Error returns one line for each problem.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxBody limits a file with a response, because it is kept in memory.
const maxBody = 1 << 20

// Load reads the file at path and the files that it names, which are relative to its directory. If
// the policy is not valid, the error is an *InvalidError. If reading fails, it is the error of the
// operating system.
func Load(path string) (*File, error) { return load(path, os.Open, Parse) }

// LoadRegular is Load for a server, which nothing may block: a policy file that is no regular file
// is an error.
func LoadRegular(path string) (*File, error) { return load(path, regular.Open, Parse) }

// LoadText is LoadRegular for somebody who must not learn about the files that the policy names: see
// ParseText.
func LoadText(path string) (*File, error) { return load(path, regular.Open, ParseText) }

func load(path string, open func(string) (*os.File, error), parse func(string, []byte) (*File, error)) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

// Parse is like Load for data that was already read. path says where it came from.
func Parse(path string, data []byte) (*File, error) { return parseFile(path, data, true, false) }

// ParseWithValues is Parse for a program that gives values to requests (policy.Request.Values), so
// that keys and costs may have value.NAME.
func ParseWithValues(path string, data []byte) (*File, error) {
	return parseFile(path, data, true, true)
}

// ParseText is like Parse for data from a sender who must not learn anything about the files of this
// machine, not even whether they exist. It opens none of the files that the policy names.
func ParseText(path string, data []byte) (*File, error) { return parseFile(path, data, false, false) }

func parseFile(path string, data []byte, withFiles, values bool) (*File, error) {
	f := &File{Path: path, Data: data, Bodies: map[string][]byte{}, Untrusted: !withFiles, Values: values}
	root, err := parse(data)
	if err != nil {
		var m *mistake
		if errors.As(err, &m) {
			f.Problems = append(f.Problems, Problem{path, m.line, m.col, m.msg, m.fix, false})
			return f, &InvalidError{f.Problems}
		}
		return f, err
	}
	f.root = root
	if err := f.decode(root, nil); err != nil {
		return f, err
	}
	if withFiles {
		f.bodies(root)
		f.upstreamTLS(root)
		f.pages(root)
		f.customers(root)
	}
	return f, f.settle()
}

// decode reads the policy of a tree, and adds what is wrong with it. complete completes each limit; nil if
// there is nothing to complete.
func (f *File) decode(root *node, complete func(*decoder, *policy.Limit)) error {
	s, err := newSchema()
	if err != nil {
		return err
	}
	for _, w := range s.check(root) {
		f.add(root, w, false)
	}
	d := decoder{spoilt: s.spoilt(), complete: complete}
	f.Policy = d.policy(root)
	for _, w := range d.findings {
		f.add(root, w, false)
	}
	wrong := len(f.Problems) > 0
	problems := f.Policy.CheckFor(policy.Options{Values: f.Values})
	for _, p := range problems {
		wrong = wrong || !p.Warning
	}
	for _, p := range problems {
		if wrong && p.Warning && p.Follows {
			continue // it may only follow from an error
		}
		if len(p.Path) >= 2 && p.Path[0] == "limits" && d.spoilt[p.Path[1]] && (len(p.Path) == 2 || slices.Contains(policy.Algorithms(), p.Path[2])) && !p.Warning {
			continue // the decoder has reported more about it
		}
		if len(p.Path) == 3 && p.Path[0] == "routes" && p.Path[2] == "match" && root.find(p.Path) == nil && !p.Warning {
			continue // the schema has reported that it is missing, or under which name it is there
		}
		fix := p.Fix
		if p.FixAt != nil {
			fix = f.Place(fix, p.FixAt...)
		}
		if len(p.Lacks) == 2 && root.get(p.Lacks[0]) == nil {
			fix = fmt.Sprintf("add at the end: %s: { %s: %s }", p.Lacks[0], p.Lacks[1], s.example(p.Lacks))
		}
		f.add(root, finding{path: p.Path, msg: p.Message, fix: fix}, p.Warning)
	}
	return nil
}

// add adds a finding with its position. It adds a finding of two checks only once.
func (f *File) add(root *node, w finding, warning bool) {
	if f.only != "" && (len(w.path) < 2 || w.path[0] != f.only) {
		return
	}
	line, col := root.at(w.path)
	if w.onKey {
		line, col = root.keyAt(w.path)
	}
	p := Problem{f.Path, line, col, w.msg, w.fix, warning}
	if !slices.ContainsFunc(f.Problems, func(q Problem) bool { return q.Line == p.Line && q.Col == p.Col && !q.Warning && !warning }) {
		f.Problems = append(f.Problems, p)
	}
}

// keyAt returns the position of the last key of a path.
func (n *node) keyAt(path []string) (line, col int) {
	if len(path) == 0 {
		return n.line, n.col
	}
	parent := n
	for _, name := range path[:len(path)-1] {
		if parent.shape == list {
			i, _ := strconv.Atoi(name)
			parent = parent.items[i]
			continue
		}
		parent = parent.get(name)
	}
	for _, f := range append(slices.Clip(parent.fields), parent.empty...) {
		if f.name == path[len(path)-1] {
			return f.line, f.col
		}
	}
	return n.at(path)
}

// bodies reads the files with responses to refused requests, and to requests whose upstream failed.
func (f *File) bodies(root *node) {
	for i, r := range f.Policy.Routes {
		f.body(root, r.Refused.File, i, "refused")
		f.body(root, r.Failed.File, i, "failed")
		f.body(root, r.Respond.File, i, "respond")
	}
}

// body reads the file with a response that a route names.
func (f *File) body(root *node, name string, route int, word string) {
	if name == "" || f.Bodies[name] != nil {
		return
	}
	data, err := readSmall(f.Beside(name), name)
	if err != nil {
		f.add(root, finding{
			path: []string{"routes", strconv.Itoa(route), word, "file"},
			msg:  err.Error(),
			fix:  "name a file beside the policy file, of at most 1 MiB",
		}, false)
		return
	}
	f.Bodies[name] = data
}

// readSmall reads a file of at most maxBody bytes. name is its name in the policy.
func readSmall(path, name string) ([]byte, error) {
	file, err := regular.Open(path)
	if err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	case len(data) > maxBody:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxBody)
	}
	return append([]byte{}, data...), nil
}

// settle sorts the problems. It returns an error if any of them is more than a warning.
func (f *File) settle() error {
	slices.SortStableFunc(f.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	if slices.ContainsFunc(f.Problems, func(p Problem) bool { return !p.Warning }) {
		return &InvalidError{f.Problems}
	}
	return nil
}
