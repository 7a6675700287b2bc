package weirrueidis

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/weirredis"
)

// eachNode is how long one node has to say which node serves which slots, before the next is asked.
const eachNode = 200 * time.Millisecond

// Slots makes an evaler a weirredis.Mapper. It asks the nodes that the client knows, one after the
// other, until one answers.
func (e evaler) Slots(ctx context.Context) (ranges []weirredis.SlotRange, err error) {
	err = errors.New("weirrueidis: the client knows no node")
	for addr, node := range e.client.Nodes() { // in random order
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ranges, err = slotsOf(ctx, addr, node); err == nil && len(ranges) > 0 {
			return ranges, nil
		}
	}
	return nil, err
}

// slotsOf asks one node.
func slotsOf(ctx context.Context, addr string, node rueidis.Client) (ranges []weirredis.SlotRange, err error) {
	ctx, cancel := context.WithTimeout(ctx, eachNode)
	defer cancel()
	list, err := node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr)
	for i := range list {
		r, err := slotRange(list[i], host)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// slotRange reads an element of CLUSTER SLOTS: the first slot, the last one, the master, and its
// replicas. A master whose host is not known is at the host that was asked.
func slotRange(m rueidis.RedisMessage, host string) (r weirredis.SlotRange, err error) {
	parts, err := m.ToArray()
	if err != nil {
		return r, err
	}
	if len(parts) < 3 {
		return r, errors.New("weirrueidis: the server's answer to CLUSTER SLOTS is not understood")
	}
	first, err1 := parts[0].AsInt64()
	last, err2 := parts[1].AsInt64()
	master, err3 := parts[2].ToArray()
	if err := errors.Join(err1, err2, err3); err != nil {
		return r, err
	}
	if len(master) < 2 || first < 0 || last < first || last > 1<<14-1 {
		return r, errors.New("weirrueidis: the server's answer to CLUSTER SLOTS is not understood")
	}
	if known, err := master[0].ToString(); err == nil && known != "" && known != "?" {
		host = known
	}
	port, err := master[1].AsInt64()
	if err != nil {
		return r, err
	}
	return weirredis.SlotRange{First: uint16(first), Last: uint16(last), Node: net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
}

// Slots is that of the client, once there is one.
func (l *link) Slots(ctx context.Context) ([]weirredis.SlotRange, error) {
	client, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return evaler{client}.Slots(ctx)
}
