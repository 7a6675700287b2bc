package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// MoveSlot moves a slot and its keys from one master to another, while clients use it. A command
// for a key that has moved gets ASK; one for several keys of which some have moved gets TRYAGAIN.
// After an error it may be called again.
func (c *RedisCluster) MoveSlot(ctx context.Context, slot int, from, to *RedisServer) error {
	m := &move{cluster: c, conns: map[*RedisServer]*RedisConn{}}
	defer m.close()
	return m.slot(ctx, slot, from, to)
}

// MoveSlots moves the slots lo to hi, both included, one after the other, from the masters that own
// them to one master.
func (c *RedisCluster) MoveSlots(ctx context.Context, lo, hi int, to *RedisServer) error {
	if lo < 0 || lo > hi || hi >= slots {
		return fmt.Errorf("there are no slots from %d to %d", lo, hi)
	}
	owners, err := c.owners(ctx, to)
	if err != nil {
		return err
	}
	m := &move{cluster: c, conns: map[*RedisServer]*RedisConn{}}
	defer m.close()
	for slot := lo; slot <= hi; slot++ {
		switch from := owners[slot]; from {
		case to:
		case nil:
			return fmt.Errorf("%s knows no owner of slot %d", to, slot)
		default:
			if err := m.slot(ctx, slot, from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// A move keeps connections to the nodes.
type move struct {
	cluster *RedisCluster
	conns   map[*RedisServer]*RedisConn
}

func (m *move) close() {
	for _, c := range m.conns {
		c.Close()
	}
}

func (m *move) do(ctx context.Context, s *RedisServer, args ...string) (any, error) {
	c := m.conns[s]
	if c == nil {
		var err error
		if c, err = s.Conn(ctx); err != nil {
			return nil, err
		}
		m.conns[s] = c
	}
	v, err := c.Do(ctx, args...)
	if err == nil {
		return v, nil
	}
	if _, replied := errors.AsType[RedisError](err); !replied {
		delete(m.conns, s) // it is closed
	}
	return nil, fmt.Errorf("%s: %s: %w", s, strings.Join(args[:min(3, len(args))], " "), err)
}

// slot moves a slot as described in
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec, Live resharding: the
// new owner is informed before the old one, so that one of them serves each key at every moment.
func (m *move) slot(ctx context.Context, slot int, from, to *RedisServer) error {
	number, fromID, toID := strconv.Itoa(slot), m.cluster.ids[from], m.cluster.ids[to]
	if fromID == "" || toID == "" || from == to {
		return errors.New("a slot moves between two nodes of the cluster")
	}
	if _, err := m.do(ctx, to, "CLUSTER", "SETSLOT", number, "IMPORTING", fromID); err != nil {
		return err
	}
	if _, err := m.do(ctx, from, "CLUSTER", "SETSLOT", number, "MIGRATING", toID); err != nil {
		return err
	}
	for {
		v, err := m.do(ctx, from, "CLUSTER", "GETKEYSINSLOT", number, "100")
		if err != nil {
			return err
		}
		keys, _ := v.([]any)
		if len(keys) == 0 {
			break
		}
		if err := m.keys(ctx, keys, from, to); err != nil {
			return err
		}
	}
	return m.hand(ctx, number, from, to)
}

func (m *move) keys(ctx context.Context, keys []any, from, to *RedisServer) error {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return err
	}
	// The keys are here, so nobody was sent there to make one of the same name: one that is there
	// is from a MIGRATE whose end was lost. no key here, database 0, milliseconds
	args := []string{"MIGRATE", host, port, "", "0", "5000", "REPLACE"}
	if p := m.cluster.password; p != "" {
		args = append(args, "AUTH", p)
	}
	args = append(args, "KEYS")
	for _, k := range keys {
		args = append(args, fmt.Sprint(k))
	}
	var final error
	err = await(ctx, nil, func(ctx context.Context) error {
		_, err := m.do(ctx, from, args...)
		// On a busy machine the two may be delayed, or a node may count as failed for a moment.
		if e, ok := errors.AsType[RedisError](err); ok && (e.Code() == "IOERR" || e.Code() == "CLUSTERDOWN") {
			return err
		}
		final = err
		return nil
	})
	return errors.Join(err, final)
}

// hand assigns a slot without keys to its new owner, and tells every other master.
func (m *move) hand(ctx context.Context, number string, from, to *RedisServer) error {
	verdict := []string{"CLUSTER", "SETSLOT", number, "NODE", m.cluster.ids[to]}
	for _, s := range []*RedisServer{to, from} {
		if _, err := m.do(ctx, s, verdict...); err != nil {
			return err
		}
	}
	for _, s := range m.cluster.Nodes() {
		if s != to && s != from {
			m.tell(ctx, s, verdict)
		}
	}
	return ctx.Err()
}

// tell informs a master of the owner of a slot. A master that does not respond learns it from the
// others later, as replicas do from their masters.
func (m *move) tell(ctx context.Context, s *RedisServer, verdict []string) {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	role, err := m.do(ctx, s, "ROLE")
	if list, ok := role.([]any); err == nil && ok && len(list) > 0 && list[0] == "master" {
		_, _ = m.do(ctx, s, verdict...)
	}
}
