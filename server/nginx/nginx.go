// Package nginx reads nginx configurations and converts their rate limits, routes and upstreams to
// a policy file. It lists everything that a policy cannot express, with its line and the reason.
package nginx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Position is a place in a file. Columns count bytes, from 1.
type Position struct {
	File      string
	Line, Col int
}

// String has the form FILE:LINE:COL.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

// An Error is a mistake in a configuration that nginx would refuse too, or a configuration beyond
// the limits of this package.
type Error struct {
	Position
	Message string
	Fix     string // what to write instead; may be empty
}

// Error has the form FILE:LINE:COL: error: MESSAGE. The fix follows on a line of its own.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: error: %s", e.Position, e.Message)
	if e.Fix != "" {
		s += "\n\tfix: " + e.Fix
	}
	return s
}

// Limits for all files of a configuration together.
const (
	maxBytes      = 16 << 20
	maxFiles      = 1000
	maxDirectives = 200_000
	maxDepth      = 32 // of blocks, and of includes
)

// A Directive is a name with its arguments, and with a block if it has one.
type Directive struct {
	Position
	Name  string
	Args  []string // without quotes and escapes
	Block []Directive
	Opens bool // it has a block, possibly an empty one
}

// Files opens a configuration and the files that it includes.
type Files interface {
	ReadFile(name string) ([]byte, error)
	Glob(pattern string) ([]string, error)
}

// disk reads the files of this machine.
type disk struct{}

func (disk) ReadFile(name string) ([]byte, error)  { return os.ReadFile(name) }
func (disk) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// Disk returns a Files for the files of this machine.
func Disk() Files { return disk{} }

// Parse parses a configuration and the files that it includes. As in nginx, the names of included
// files are relative to the directory of the main file, even in an included file. For a wrong
// configuration, the error is an *Error. If a file cannot be read, it is the error of reading.
func Parse(files Files, name string) ([]Directive, error) {
	p := &parser{files: files, dir: filepath.Dir(name)}
	return p.file(name, 0, Position{})
}

// parsePartly is like Parse, but skips included files that cannot be read. It returns a note for
// each of them.
func parsePartly(files Files, name string) (all []Directive, skipped []Note, err error) {
	p := &parser{files: files, dir: filepath.Dir(name), partly: true}
	all, err = p.file(name, 0, Position{})
	return all, p.skipped, err
}

// parser is shared by all files of one configuration.
type parser struct {
	files             Files
	dir               string
	bytes, opened, at int // bytes read, files opened, and directives so far

	partly  bool   // skip included files that cannot be read
	skipped []Note // one for each skipped file
}

// file parses a file. from is the position of the include.
func (p *parser) file(name string, depth int, from Position) ([]Directive, error) {
	data, err := p.files.ReadFile(name)
	if err != nil {
		if from.File == "" {
			return nil, err
		}
		if p.partly {
			p.skipped = append(p.skipped, Note{from, true, fmt.Sprintf("%s cannot be read (%v), and is skipped with all that it says", name, reason(err))})
			return nil, nil
		}
		return nil, &Error{from, fmt.Sprintf("%s cannot be read: %v", name, reason(err)), fmt.Sprintf("relative names begin in the directory %q; --partial skips what cannot be read", p.dir)}
	}
	p.bytes, p.opened = p.bytes+len(data), p.opened+1
	switch at := (Position{name, 1, 1}); {
	case p.bytes > maxBytes:
		return nil, &Error{at, fmt.Sprintf("the configuration is larger than %d MiB", maxBytes>>20), "import it in parts"}
	case p.opened > maxFiles:
		return nil, &Error{at, fmt.Sprintf("the configuration has more than %d files", maxFiles), "import it in parts"}
	}
	l := &lexer{text: string(data), pos: Position{name, 1, 1}}
	all, closed, err := p.block(l, depth)
	if err == nil && closed {
		err = &Error{l.last, "this } closes nothing", "take it out, or add the { that it belongs to"}
	}
	return all, err
}

// reason returns an error without the name of the file.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// block parses directives up to the end of a block or of the file.
func (p *parser) block(l *lexer, depth int) (all []Directive, closed bool, err error) {
	if depth > maxDepth {
		return nil, false, &Error{l.pos, fmt.Sprintf("blocks and includes are nested deeper than %d", maxDepth), "does a file include itself?"}
	}
	for {
		d, end, err := p.directive(l, depth)
		switch {
		case err != nil:
			return nil, false, err
		case end != endDirective:
			return all, end == endBlock, nil
		}
		if p.at++; p.at > maxDirectives {
			return nil, false, &Error{d.Position, fmt.Sprintf("the configuration has more than %d directives", maxDirectives), "import it in parts"}
		}
		if d.Name != "include" || d.Opens {
			all = append(all, d)
			continue
		}
		included, err := p.include(d, depth)
		if err != nil {
			return nil, false, err
		}
		all = append(all, included...)
	}
}

// end is what ended a directive.
type end uint8

const (
	endDirective end = iota
	endBlock
	endFile
)

// directive parses one directive with its block.
func (p *parser) directive(l *lexer, depth int) (d Directive, e end, err error) {
	named := false // a name may be empty: in a map, "" stands for the empty value
	for {
		t, err := l.next()
		if err != nil {
			return d, 0, err
		}
		switch {
		case t.kind == word && !named:
			d.Name, d.Position, named = t.text, t.pos, true
		case t.kind == word:
			d.Args = append(d.Args, t.text)
		case !named && t.kind == closes:
			return d, endBlock, nil
		case !named && t.kind == eof:
			return d, endFile, nil
		case !named:
			return d, 0, &Error{t.pos, fmt.Sprintf("unexpected %q", t.text), "a directive begins with its name"}
		case t.kind == semicolon:
			return d, endDirective, nil
		case t.kind == opens:
			d.Opens = true
			if strings.HasSuffix(d.Name, "_by_lua_block") {
				return d, endDirective, l.skipLua(t.pos)
			}
			block, closed, err := p.block(l, depth+1)
			if err == nil && !closed {
				err = &Error{t.pos, "the block that begins here does not end", "add the } that is missing"}
			}
			d.Block = block
			return d, endDirective, err
		default:
			return d, 0, &Error{t.pos, fmt.Sprintf("the directive %q does not end", d.Name), "end it with a ; before this"}
		}
	}
}

// include parses the files that an include names.
func (p *parser) include(d Directive, depth int) (all []Directive, err error) {
	if len(d.Args) != 1 || d.Args[0] == "" {
		return nil, &Error{d.Position, fmt.Sprintf("include has %d arguments", len(d.Args)), "name one file, or a pattern like conf.d/*.conf"}
	}
	name := d.Args[0]
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.dir, name)
	}
	names := []string{name}
	if strings.ContainsAny(name, "*?[") { // a pattern may match no file
		if names, err = p.files.Glob(name); err != nil {
			return nil, &Error{d.Position, fmt.Sprintf("%q is not a pattern: %v", d.Args[0], err), ""}
		}
		slices.Sort(names)
	}
	for _, name := range names {
		included, err := p.file(name, depth+1, d.Position)
		if err != nil {
			return nil, err
		}
		all = append(all, included...)
	}
	return all, nil
}
