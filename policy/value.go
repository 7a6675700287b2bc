package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// Values is what a program knows of a request beyond HTTP, for value.NAME in keys and costs: a web
// server's variables, or who has logged in.
type Values interface {
	// Value returns the value of that name. present is false if the request has none.
	Value(name string) (value string, present bool)
}

// value returns a value that the program gave the request.
func (r *request) value(name string) (value string, present bool) {
	if r.Values == nil {
		return "", false
	}
	return r.Values.Value(name)
}

// values checks that a limit reads values only where a program gives requests some.
func (c *checker) values(l *Limit) {
	if c.valuesGiven {
		return
	}
	const message = "%s is a value that a program gives to requests, and here none does"
	for i, text := range l.Key {
		if l.InEnvoy {
			break // descriptors give them
		}
		if p, err := parsePart(text); err == nil && p.kind == partValue {
			c.wrong(fmt.Sprintf(message, text), "write a part that every server knows, like client.ip or header.NAME", "limits", l.Name, "key", strconv.Itoa(i))
		}
	}
	if strings.HasPrefix(l.Cost, "value.") {
		c.wrong(fmt.Sprintf(message, l.Cost), "write a whole number, header.NAME or bytes", "limits", l.Name, "cost")
	}
}
