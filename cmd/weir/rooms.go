package main

import (
	"fmt"
	"io"

	"github.com/weirflow/weir/policy"
)

// noteRooms tells that waiting rooms are left out where nobody waits: in logs and in scripts there are no visitors who come back.
func noteRooms(w io.Writer, p *policy.Policy) {
	for i := range p.Routes {
		if p.Routes[i].Room != "" {
			fmt.Fprintln(w, "note: waiting rooms are left out here: every request counts as one of a visitor who was let in")
			return
		}
	}
}
