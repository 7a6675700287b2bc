package policy

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/weirflow/weir"
)

// A WaitingRoom is a queue in front of a route: while the route is full, visitors wait in order of
// arrival. Package server/room implements it. An Engine does not use it.
type WaitingRoom struct {
	Name  string
	Admit weir.Rate // the rate at which visitors are admitted
	// how many at once; default: what Admit allows in one second, at least 1
	Burst  int64
	Inside int64 // how many may be inside at once; 0 is no bound
	// a visitor inside without a request for this long has left; default: 5 minutes
	Idle        time.Duration
	Session     time.Duration // how long a visitor may be inside; default: 30 minutes
	EnterWithin time.Duration // how long an admitted visitor's place is kept; default: 1 minute
	// a visitor who stops polling for this long loses the place; default: 2 minutes
	PollTimeout time.Duration
	MaxWaiting  int64 // how many may wait; default: 100000
	// the rate at which one client address may join, on each gateway; default: 60/m
	Joins weir.Rate
	// how many visitors of one client address may wait and be inside, on each gateway; default: a fifth
	// of Inside, from 20 to 100
	VisitorsPerAddress int64
	// what a ticket is bound to: "agent", "address", "none"; default: agent
	Bind       string
	SecretFile string // a file with the secrets that sign tickets; default: a random one
	Store      string // the name of a store; default: the memory of this process
	OnFailure  string // without the store: "keep" or "allow"; default: keep
	Status     int    // of the page: 503, 200, 202 or 429; default: 503
	Title      string // of the page; default: a built-in one in the visitor's language
	Text       string // of the page; the same
	Language   string // of the page: "en", "de", "es", "fr"; default: the visitor's
	Page       string // a file with your own page

	// nobody is admitted before this time, and visitors who have come by then are drawn by lot; zero: the room is open
	Opens    time.Time
	Pause    bool   // nobody is admitted, and visitors keep their places
	Drain    bool   // no visitor gets a new place, and waiting visitors are admitted
	Announce string // what the page says besides
}

// Defaults of a WaitingRoom.
const (
	DefaultRoomIdle        = 5 * time.Minute
	DefaultRoomSession     = 30 * time.Minute
	DefaultRoomEnterWithin = time.Minute
	DefaultRoomPollTimeout = 2 * time.Minute
	DefaultRoomMaxWaiting  = 100_000
)

// LongestPoll is the longest delay between two polls of a waiting visitor. PollTimeout must be
// longer. Otherwise, visitors who poll as instructed would lose their places.
const LongestPoll = 36 * time.Second

var (
	roomBinds     = []string{"agent", "address", "none"}
	roomOnFailure = []string{"keep", "allow"}
	roomLanguages = []string{"en", "de", "es", "fr"}
	roomStatuses  = []int{200, 202, 429, 503}
)

// WithDefaults returns the room with defaults for all zero values.
func (r WaitingRoom) WithDefaults() WaitingRoom {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&r.Idle, DefaultRoomIdle)
	set(&r.Session, DefaultRoomSession)
	set(&r.EnterWithin, DefaultRoomEnterWithin)
	set(&r.PollTimeout, DefaultRoomPollTimeout)
	if r.Burst == 0 && r.Admit.Per > 0 {
		high, low := bits.Mul64(uint64(max(r.Admit.N, 0)), uint64(time.Second))
		r.Burst = maxRoom + 1 // which Check reports as too large
		if high < uint64(r.Admit.Per) {
			n, _ := bits.Div64(high, low, uint64(r.Admit.Per))
			r.Burst = int64(min(max(n, 1), maxRoom+1))
		}
	}
	if r.MaxWaiting == 0 {
		r.MaxWaiting = DefaultRoomMaxWaiting
	}
	if r.Joins == (weir.Rate{}) {
		r.Joins = weir.PerMinute(60)
	}
	if r.VisitorsPerAddress == 0 {
		r.VisitorsPerAddress = 100
		if r.Inside > 0 {
			r.VisitorsPerAddress = min(max(r.Inside/5, 20), 100)
		}
	}
	if r.Bind == "" {
		r.Bind = "agent"
	}
	if r.OnFailure == "" {
		r.OnFailure = "keep"
	}
	if r.Status == 0 {
		r.Status = 503
	}
	return r
}

// room returns the waiting room with that name, or nil.
func (p *Policy) room(name string) *WaitingRoom {
	for i := range p.Rooms {
		if p.Rooms[i].Name == name {
			return &p.Rooms[i]
		}
	}
	return nil
}

const (
	maxRoom     = 10_000_000     // visitors that wait or are inside
	maxRoomTime = 24 * time.Hour // of each duration
	maxAnnounce = 1000           // bytes

	maxRoomRate = 1_000_000_000 // visitors, in any time
	// the burst times the microseconds of Admit.Per; a store counts in doubles
	maxRoomTicks = 1 << 52
)

// rooms checks the waiting rooms, and that routes refer to existing ones.
func (c *checker) rooms() {
	seen, used := map[string]bool{}, map[string]bool{}
	for i := range c.Routes {
		name := c.Routes[i].Room
		used[name] = true
		if name != "" && c.room(name) == nil {
			fix := "there are no waiting rooms: add one under waiting_rooms"
			if len(c.Rooms) > 0 {
				fix = suggest(name, names(c.Rooms, func(r WaitingRoom) string { return r.Name }))
			}
			c.wrong(fmt.Sprintf("there is no waiting room %q", name), fix, "routes", strconv.Itoa(i), "waiting_room")
		}
	}
	for i := range c.Rooms {
		r := &c.Rooms[i]
		c.name("a waiting room", r.Name, seen, "waiting_rooms", r.Name)
		c.roomNumbers(r)
		c.roomWords(r)
		if !used[r.Name] {
			c.warn(fmt.Sprintf("no route uses the waiting room %q", r.Name), "name it as the waiting_room of a route, or take it out", "waiting_rooms", r.Name)
		}
	}
}

// roomNumbers checks the counts and durations.
func (c *checker) roomNumbers(r *WaitingRoom) {
	at := func(field string) []string { return []string{"waiting_rooms", r.Name, field} }
	full := r.WithDefaults()
	if r.Admit != (weir.Rate{}) { // otherwise Admit is missing
		if _, err := weir.Prepare(full.Bucket(), time.Microsecond); err != nil {
			c.wrong(err.Error(), "write the rate at which visitors are admitted, like 50/s", at("admit")...)
		} else if r.Admit.Per%time.Microsecond != 0 || full.Burst > maxRoom || r.Admit.N > maxRoomRate ||
			r.Admit.Per/time.Microsecond > maxRoomTicks/time.Duration(full.Burst) {
			c.wrong(fmt.Sprintf("admit %v with a burst of %d is beyond what a room counts", r.Admit, full.Burst), "write whole microseconds, and smaller numbers", at("admit")...)
		}
	}
	if _, err := weir.Prepare(weir.TokenBucket{Rate: full.Joins, Burst: full.Joins.N}, time.Nanosecond); err != nil {
		c.wrong(err.Error(), "write how many visitors an address may bring, like 60/m", at("joins")...)
	}
	for _, f := range []struct {
		name string
		n    int64
	}{{"inside", r.Inside}, {"max_waiting", r.MaxWaiting}, {"visitors_per_address", r.VisitorsPerAddress}} {
		if f.n < 0 || f.n > maxRoom {
			c.wrong(fmt.Sprintf("%d is not how many visitors there may be", f.n), fmt.Sprintf("write at most %d", maxRoom), at(f.name)...)
		}
	}
	for _, f := range []struct {
		name   string
		d, min time.Duration
	}{{"idle", full.Idle, time.Second}, {"session", full.Session, time.Second}, {"enter_within", full.EnterWithin, time.Second}, {"poll_timeout", full.PollTimeout, LongestPoll + time.Second}} {
		if f.d < f.min || f.d > maxRoomTime {
			c.wrong(fmt.Sprintf("%s of %v is too short or too long", f.name, f.d), fmt.Sprintf("write one from %v to 24h", f.min), at(f.name)...)
		}
	}
}

// roomWords checks the settings with fixed words, and those that refer to something.
func (c *checker) roomWords(r *WaitingRoom) {
	for _, f := range []struct {
		name, word, what string
		known            []string
	}{
		{"bind", r.Bind, "what a ticket can be bound to", roomBinds},
		{"on_failure", r.OnFailure, "what to do without the store", roomOnFailure},
		{"language", r.Language, "a language of the page", roomLanguages},
	} {
		if f.word != "" && !slices.Contains(f.known, f.word) {
			c.wrong(fmt.Sprintf("%q is not %s", f.word, f.what), suggest(f.word, f.known), "waiting_rooms", r.Name, f.name)
		}
	}
	if r.Status != 0 && !slices.Contains(roomStatuses, r.Status) {
		c.wrong(fmt.Sprintf("%d is not a status for waiting visitors", r.Status), "write 503, 429, 202 or 200", "waiting_rooms", r.Name, "status")
	}
	if len(r.Announce) > maxAnnounce {
		c.wrong(fmt.Sprintf("the announcement has %d bytes", len(r.Announce)), fmt.Sprintf("write at most %d", maxAnnounce), "waiting_rooms", r.Name, "announce")
	}
	if r.OnFailure != "" && r.Store == "" {
		c.wrong("the room is in no store that could fail", "take on_failure out, or name a store", "waiting_rooms", r.Name, "on_failure")
	}
	if r.Store != "" && c.store(r.Store) == nil {
		c.unknown("store", r.Store, names(c.Stores, func(s Store) string { return s.Name }), "waiting_rooms", r.Name, "store")
	}
	if r.Store != "" && r.SecretFile == "" {
		c.warn("tickets of this room are good at one gateway only, as each makes a secret of its own", "name the same secret_file at each gateway",
			"waiting_rooms", r.Name)
	}
}

// Bucket returns the limit by which a room admits visitors.
func (r *WaitingRoom) Bucket() weir.TokenBucket {
	return weir.TokenBucket{Rate: r.Admit, Burst: r.Burst}
}
