package main

import (
	"fmt"
	"io"

	"github.com/weirflow/weir/policy"
)

// noteSkippedRooms warns that waiting rooms are skipped: logs and scripts have no visitors that
// come back to poll.
func noteSkippedRooms(w io.Writer, p *policy.Policy) {
	for i := range p.Routes {
		if p.Routes[i].Room != "" {
			fmt.Fprintln(w, "note: waiting rooms are skipped here: every request counts as one of an admitted visitor")
			return
		}
	}
}
