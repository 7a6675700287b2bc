package gateway

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/weirhttp"
)

// waitingRooms are the waiting rooms of a policy, by name. An update keeps the visitors of a room
// that keeps its name and its store.
type waitingRooms map[string]*waitingRoom

type waitingRoom struct {
	room   *room.Room
	queue  room.Queue
	spec   room.Spec
	shared bool         // the queue is in a store
	made   room.Secrets // by this process, for a room without a secret_file
}

// roomKeeper is a store that keeps the queues of waiting rooms.
type roomKeeper interface {
	Line(name string, s room.Spec) (room.Queue, error)
}

// openRooms prepares the waiting rooms of a policy. Rooms that stay are changed later, by use.
func (g *Gateway) openRooms(file *policyfile.File, stores map[string]weir.Store, old waitingRooms) (waitingRooms, error) {
	next := waitingRooms{}
	for _, def := range file.Policy.Rooms {
		d, err := g.openRoom(def, file, stores, old[def.Name])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: waiting_rooms.%s: %w", file.Path, def.Name, err), next.leave(old))
		}
		next[def.Name] = d
	}
	return next, nil
}

func (g *Gateway) openRoom(def policy.WaitingRoom, file *policyfile.File, stores map[string]weir.Store, old *waitingRoom) (*waitingRoom, error) {
	d := &waitingRoom{spec: room.SpecOf(def)}
	if old != nil {
		d.made = old.made
	}
	o := room.Options{Room: def, Log: g.log}
	if def.Page != "" {
		o.Page = file.Bodies[def.Page]
	}
	var err error
	if o.Secrets, err = d.secrets(g, def, file, old == nil); err != nil {
		return nil, err
	}
	if err := d.openQueue(def, stores, old); err != nil {
		return nil, err
	}
	o.Queue = d.queue
	if old != nil {
		d.room, err = old.room.Next(o)
	} else {
		d.room, err = room.New(o)
	}
	if err != nil && (old == nil || old.queue != d.queue) {
		err = errors.Join(err, d.queue.Close())
	}
	return d, err
}

// secrets reads the secrets of a room, or makes one.
func (d *waitingRoom) secrets(g *Gateway, def policy.WaitingRoom, file *policyfile.File, first bool) (room.Secrets, error) {
	if def.SecretFile == "" {
		if first {
			d.made = room.NewSecrets()
			g.log.Warn("waiting room without a secret_file: its tickets are valid at this gateway alone, and until this process ends", "room", def.Name)
		}
		return d.made, nil
	}
	if first {
		d.made = room.NewSecrets() // for an update that removes the file
	}
	return room.ReadSecrets(file.Beside(def.SecretFile))
}

// openQueue opens the queue of a room, or keeps the one it had.
func (d *waitingRoom) openQueue(def policy.WaitingRoom, stores map[string]weir.Store, old *waitingRoom) (err error) {
	if def.Store == "" {
		if old != nil && !old.shared {
			d.queue = old.queue
			return nil
		}
		d.queue, err = room.NewMemory(d.spec, nil)
		return err
	}
	store, ok := stores[def.Store].(roomKeeper)
	if !ok {
		return fmt.Errorf("the store %q is not open, or keeps no waiting rooms", def.Store)
	}
	d.shared = true
	d.queue, err = store.Line(def.Name, d.spec)
	return err
}

// use puts the parameters of the rooms in force.
func (all waitingRooms) use() error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.room.Use())
		if m, ok := d.queue.(*room.Memory); ok {
			errs = append(errs, m.Set(d.spec))
		}
	}
	return errors.Join(errs...)
}

// leave closes the queues and rooms that others do not continue.
func (all waitingRooms) leave(others waitingRooms) error {
	var errs []error
	for name, d := range all {
		other := others[name]
		if other == nil || other.queue != d.queue {
			errs = append(errs, d.queue.Close())
		}
		if other == nil {
			errs = append(errs, d.room.Close())
		}
	}
	return errors.Join(errs...)
}

// throughRoom reports whether a request may go on to its route: the route has no waiting room, or
// the visitor is inside. The response goes to the writer that is returned. After false, the waiting
// room has responded.
func (g *Gateway) throughRoom(w http.ResponseWriter, r *http.Request, s *state, route int, client string) (http.ResponseWriter, bool) {
	if len(s.rooms) == 0 || route < 0 || s.file.Policy.Routes[route].Room == "" {
		return w, true
	}
	g.closeIfLeaving(w.Header())
	trusted := s.file.Policy.TrustedProxies
	c := room.Client{
		Address: client,
		Secure:  r.TLS != nil || weirhttp.Trusted(r, trusted) && r.Header.Get("X-Forwarded-Proto") == "https",
	}
	c.Plain = s.routes[route].refused.plain && s.routes[route].refused.own
	next, ok := s.rooms[s.file.Policy.Routes[route].Room].room.Serve(w, r, c, func(w http.ResponseWriter) {
		s.routes[route].refused.Write(w, r, "")
	})
	if !ok {
		g.counts.waiting.Add(1)
	}
	return next, ok
}

// Rooms returns the counters of the waiting rooms.
func (g *Gateway) Rooms() (all []room.Stats) {
	s := g.state.Load()
	for _, def := range s.file.Policy.Rooms {
		all = append(all, s.rooms[def.Name].room.Stats())
	}
	return all
}
