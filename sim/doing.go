package sim

import (
	"cmp"
	"slices"
	"strings"
)

// LimitedClient is a client that was limited, and what it was doing. Its texts are those of the log: they may have
// anything in them.
type LimitedClient struct {
	Client            string
	Requests, Limited int64
	PerMinute         int64    // its requests in its busiest minute
	Errors            int64    // requests whose response had a status from 400 on
	Agent             string   // its first User-Agent
	Kind              string   // person, bot or monitor, as it seems
	Name              string   // of a bot or monitor
	Paths             []string // most of what it asked for, the most frequent first
}

// describe completes what the report says of clients by their requests.
func (r *Report) describe() {
	var all []*visitor
	for name, v := range r.visitors.all {
		all = append(all, v)
		if v.limited == 0 {
			continue
		}
		kind, known := v.kind()
		c := LimitedClient{Client: name, Requests: v.requests, Limited: v.limited, PerMinute: int64(v.peak[1]), Errors: v.errors, Agent: v.agent, Kind: kind.String(), Name: known}
		slices.SortFunc(v.tops[:], func(a, b countedPath) int {
			return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.path, b.path))
		})
		for _, p := range v.tops {
			if p.count > 0 {
				c.Paths = append(c.Paths, p.path)
			}
		}
		r.Doing = append(r.Doing, c)
		if len(r.Doing) >= 1024 {
			r.keepMost()
		}
	}
	r.keepMost()
	r.Heat = heatOf(all)
}

// keepMost keeps the clients that were limited most.
func (r *Report) keepMost() {
	slices.SortFunc(r.Doing, func(a, b LimitedClient) int {
		return cmp.Or(cmp.Compare(b.Limited, a.Limited), strings.Compare(a.Client, b.Client))
	})
	r.Doing = r.Doing[:min(len(r.Doing), mostKeys)]
}
