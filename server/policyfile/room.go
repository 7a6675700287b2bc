package policyfile

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

func (d *decoder) room(name string, n *node) policy.WaitingRoom {
	at := func(field string) []string { return []string{"waiting_rooms", name, field} }
	r := policy.WaitingRoom{
		Name:        name,
		Admit:       d.rate(n.get("admit"), "50/s", at("admit")...),
		Burst:       d.atLeastOne(n.get("burst"), at("burst")...),
		Inside:      d.atLeastOne(n.get("inside"), at("inside")...),
		Idle:        d.duration(n.get("idle"), "5m", at("idle")...),
		Session:     d.duration(n.get("session"), "30m", at("session")...),
		EnterWithin: d.duration(n.get("enter_within"), "1m", at("enter_within")...),
		PollTimeout: d.duration(n.get("poll_timeout"), "2m", at("poll_timeout")...),
		MaxWaiting:  d.atLeastOne(n.get("max_waiting"), at("max_waiting")...),
		Joins:       d.rate(n.get("joins"), "60/m", at("joins")...),
		Bind:        text(n.get("bind")),

		VisitorsPerAddress: d.atLeastOne(n.get("visitors_per_address"), at("visitors_per_address")...),

		SecretFile: text(n.get("secret_file")),
		Store:      text(n.get("store")),
		OnFailure:  text(n.get("on_failure")),
		Status:     int(number(n.get("status"))),
		Title:      text(n.get("title")),
		Text:       text(n.get("text")),
		Language:   text(n.get("language")),
		Page:       text(n.get("page")),

		Opens:    d.moment(n.get("opens"), at("opens")...),
		Pause:    truth(n.get("pause")),
		Drain:    truth(n.get("drain")),
		Announce: text(n.get("announce")),
	}
	return r
}

// moment reads a time with its zone. It is kept in UTC.
func (d *decoder) moment(n *node, path ...string) time.Time {
	written := text(n)
	if written == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, written)
	if err != nil || at.Year() < 2000 || at.Year() > 2200 {
		d.wrong(fmt.Sprintf("%.40q is not a time with its zone", written), "write it like 2027-01-15T10:00:00+01:00, or 2027-01-15T09:00:00Z", path...)
		return time.Time{}
	}
	return at.UTC()
}

func (d *decoder) rate(n *node, like string, path ...string) weir.Rate {
	written := text(n)
	if written == "" {
		return weir.Rate{}
	}
	r, err := weir.ParseRate(written)
	if err != nil {
		d.wrong(strings.TrimPrefix(err.Error(), "weir: "), "write one like "+like, path...)
	}
	return r
}

// atLeastOne reads a number that must be above 0 if it is set.
func (d *decoder) atLeastOne(n *node, path ...string) int64 {
	v := number(n)
	if n != nil && n.shape == scalar && v == 0 {
		d.wrong("0 would admit no visitor", "write at least 1, or take it out", path...)
	}
	return v
}

// pages reads the pages of the waiting rooms.
func (f *File) pages(root *node) {
	for _, r := range f.Policy.Rooms {
		if r.Page == "" || f.Bodies[r.Page] != nil {
			continue
		}
		path := []string{"waiting_rooms", r.Name, "page"}
		data, err := readSmall(f.Beside(r.Page), r.Page)
		if err != nil {
			f.add(root, finding{path: path, msg: err.Error(), fix: "name a file beside the policy file, of at most 1 MiB"}, false)
			continue
		}
		if _, err := template.New(strconv.Quote(r.Page)).Parse(string(data)); err != nil {
			f.add(root, finding{path: path, msg: err.Error(), fix: "it is a template of Go: write fields like {{.Title}}"}, false)
			continue
		}
		f.Bodies[r.Page] = data
	}
}
