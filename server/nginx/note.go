package nginx

import (
	"cmp"
	"fmt"
	"slices"
)

// A Note is a part of the configuration that is missing from the policy, or differs, and why.
type Note struct {
	Position
	// it changes which requests are limited or allowed, or whether they reach an upstream
	Critical bool
	Text     string
}

// String has the form FILE:LINE:COL: TEXT. The text of a critical note begins with CRITICAL.
func (n Note) String() string {
	if n.Critical {
		return n.Position.String() + ": CRITICAL: " + n.Text
	}
	return n.Position.String() + ": " + n.Text
}

// sortNotes sorts critical notes first, then by position.
func sortNotes(all []Note) {
	rank := func(n Note) int {
		if n.Critical {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b Note) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), cmp.Compare(a.Text, b.Text))
	})
}

// note adds a note, unless the same note was added before.
func (c *converter) note(at Position, format string, args ...any) {
	c.add(Note{at, false, fmt.Sprintf(format, args...)})
}

// critical adds a critical note, unless the same note was added before.
func (c *converter) critical(at Position, format string, args ...any) {
	c.add(Note{at, true, fmt.Sprintf(format, args...)})
}

func (c *converter) add(n Note) {
	if key := n.String(); !c.noted[key] {
		c.noted[key] = true
		c.notes = append(c.notes, n)
	}
}
