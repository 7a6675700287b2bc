package server

import (
	"fmt"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/server/room"
)

// maxPlanned is how many visitors a waiting room may have.
const maxPlanned = 10_000_000

// PlanRoom computes what a waiting room takes in which so many visitors wait at first, and are admitted at a
// rate.
func PlanRoom(visitors int64, rate string) (*room.Plan, error) {
	r, err := weir.ParseRate(rate)
	if err != nil || r.N < 1 || r.Per <= 0 || r == weir.Unlimited {
		return nil, fmt.Errorf("the rate %q: write how many visitors are admitted in which time, like 20/s", rate)
	}
	if visitors < 1 || visitors > maxPlanned {
		return nil, fmt.Errorf("%d visitors: write how many wait, from 1 to %d", visitors, maxPlanned)
	}
	return room.PlanFor(visitors, r)
}
