package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ClusterOptions say which nodes Cluster starts. The zero value is three masters without replicas.
type ClusterOptions struct {
	Masters  int // default: 3. Redis needs three for a failover
	Replicas int // of each master
	// A node that does not respond for so long counts as failed. Default: 1 s with replicas, and otherwise
	// two minutes: nobody could take over from a node that a busy machine halts.
	NodeTimeout time.Duration

	Persist  bool     // as in RedisOptions
	Password string   // of the nodes' default user
	Config   []string // lines of redis.conf for each node
}

// A RedisCluster is a Redis Cluster. Its fields do not change. Which nodes are masters, and of
// which slots, does.
type RedisCluster struct {
	Masters  []*RedisServer // the masters at the start
	Replicas []*RedisServer // likewise: Replicas[i] was a replica of Masters[i % len(Masters)]

	ids      map[*RedisServer]string
	password string
}

// slots is the number of slots of a cluster.
const slots = 16384

// Cluster starts the nodes of a cluster, divides the slots among the masters, and waits until each
// node knows all the others and reports that the cluster is healthy.
func Cluster(ctx context.Context, o ClusterOptions) (*RedisCluster, error) {
	if o.Masters == 0 {
		o.Masters = 3
	}
	patient := o.NodeTimeout == 0 && o.Replicas == 0
	if o.NodeTimeout == 0 {
		o.NodeTimeout = time.Second // with a long one, nodes take longer to find each other
	}
	c := &RedisCluster{ids: map[*RedisServer]string{}, password: o.Password}
	err := c.start(ctx, o)
	if err == nil && patient {
		err = c.wait(ctx, 2*time.Minute)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// wait sets how long nodes wait for others from now on.
func (c *RedisCluster) wait(ctx context.Context, d time.Duration) error {
	for _, s := range c.Nodes() {
		if _, err := s.Do(ctx, "CONFIG", "SET", "cluster-node-timeout", strconv.FormatInt(d.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	return nil
}

func (c *RedisCluster) start(ctx context.Context, o ClusterOptions) error {
	for i := range o.Masters * (1 + o.Replicas) {
		s, err := c.node(ctx, o)
		if err != nil {
			return err
		}
		if i < o.Masters {
			c.Masters = append(c.Masters, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	if err := c.meet(ctx); err != nil {
		return err
	}
	// Nodes give up an introduction that takes longer than their timeout.
	introduced := time.Now()
	met := func(ctx context.Context) error {
		err := c.met(ctx)
		if err != nil && time.Since(introduced) > 2*o.NodeTimeout+time.Second {
			introduced = time.Now()
			err = errors.Join(err, c.introduce(ctx))
		}
		return err
	}
	if err := await(ctx, c.Nodes(), met); err != nil {
		return err
	}
	for i, s := range c.Replicas {
		if _, err := s.Do(ctx, "CLUSTER", "REPLICATE", c.ids[c.Masters[i%o.Masters]]); err != nil {
			return err
		}
	}
	return await(ctx, c.Nodes(), c.Healthy)
}

func (c *RedisCluster) node(ctx context.Context, o ClusterOptions) (*RedisServer, error) {
	config := []string{
		fmt.Sprintf("cluster-node-timeout %d", o.NodeTimeout.Milliseconds()),
		// otherwise a master that has lost its last slot becomes a replica
		"cluster-allow-replica-migration no",
		// a replica may become a master also after a long time without its master
		"cluster-replica-validity-factor 0",
		"repl-ping-replica-period 1",
	}
	if o.Password != "" {
		config = append(config, "masterauth "+strconv.Quote(o.Password))
	}
	config = append(config, o.Config...)
	s, err := startRedis(ctx, &RedisServer{
		program: "redis-server", clustered: true, options: RedisOptions{Persist: o.Persist, Password: o.Password, Config: config},
	})
	if err != nil {
		return nil, err
	}
	id, err := s.Do(ctx, "CLUSTER", "MYID")
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	c.ids[s] = fmt.Sprint(id)
	return s, nil
}

// meet assigns the slots and introduces the nodes. Each has an epoch of its own before that, so that
// they have no conflict to resolve.
func (c *RedisCluster) meet(ctx context.Context) error {
	for i, s := range c.Nodes() {
		if _, err := s.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if n := len(c.Masters); i < n {
			lo, hi := i*slots/n, (i+1)*slots/n-1
			if _, err := s.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(lo), strconv.Itoa(hi)); err != nil {
				return err
			}
		}
	}
	return c.introduce(ctx)
}

// introduce makes the nodes known to the first one, and so to each other.
func (c *RedisCluster) introduce(ctx context.Context) error {
	for _, s := range c.Nodes()[1:] {
		host, port, err := net.SplitHostPort(s.Addr)
		if err != nil {
			return err
		}
		if _, err := c.Masters[0].Do(ctx, "CLUSTER", "MEET", host, port, s.busPort); err != nil {
			return err
		}
	}
	return nil
}

// met returns an error for a node that does not know another one by its own name yet.
func (c *RedisCluster) met(ctx context.Context) error {
	for _, s := range c.Nodes() {
		v, err := s.Do(ctx, "CLUSTER", "NODES")
		if err != nil {
			return err
		}
		text := fmt.Sprint(v)
		if n := strings.Count(text, "\n"); n != len(c.ids) {
			return fmt.Errorf("%s knows %d nodes of %d", s, n, len(c.ids))
		}
		for _, other := range c.Nodes() {
			if !strings.Contains(text, c.ids[other]+" "+other.Addr+"@") {
				return fmt.Errorf("%s does not know %s", s, other)
			}
		}
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 8 || f[7] != "connected" || strings.Contains(f[2], "handshake") || strings.Contains(f[2], "fail") {
				return fmt.Errorf("%s has not met a node: %s", s, line)
			}
		}
	}
	return nil
}

// Healthy returns an error that says what is not healthy: a node that does not see all the others,
// a slot without a master, or a replica that is not linked to its master.
func (c *RedisCluster) Healthy(ctx context.Context) error {
	if err := c.met(ctx); err != nil {
		return err
	}
	replicas := 0
	for _, s := range c.Nodes() {
		info, err := s.fields(ctx, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(slots) {
			return fmt.Errorf("%s: the state is %s, and %s slots are well", s, info["cluster_state"], info["cluster_slots_ok"])
		}
		if info, err = s.Info(ctx, "replication"); err != nil {
			return err
		}
		if info["role"] == "slave" {
			replicas++
			if info["master_link_status"] != "up" {
				return fmt.Errorf("%s: its link to its master is %q", s, info["master_link_status"])
			}
		}
	}
	if replicas != len(c.Replicas) {
		return fmt.Errorf("%d nodes are replicas, not %d", replicas, len(c.Replicas))
	}
	return nil
}

// AwaitHealthy waits until the cluster is Healthy.
func (c *RedisCluster) AwaitHealthy(ctx context.Context) error { return await(ctx, nil, c.Healthy) }

// Nodes returns all nodes; the first masters come first.
func (c *RedisCluster) Nodes() []*RedisServer {
	return slices.Concat(c.Masters, c.Replicas)
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() []string { return addrs(c.Nodes()) }

// Slot returns the slot of a key.
func (c *RedisCluster) Slot(ctx context.Context, key string) (int, error) {
	v, err := c.Masters[0].Do(ctx, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return 0, err
	}
	slot, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("CLUSTER KEYSLOT: %v", v)
	}
	return int(slot), nil
}

// Owner returns the master of a slot, according to the first node that responds.
func (c *RedisCluster) Owner(ctx context.Context, slot int) (*RedisServer, error) {
	if slot < 0 || slot >= slots {
		return nil, fmt.Errorf("there is no slot %d", slot)
	}
	var errs []error
	for _, s := range c.Nodes() {
		owners, err := c.owners(ctx, s)
		if err == nil && owners[slot] == nil {
			err = fmt.Errorf("%s knows no owner of slot %d", s, slot)
		}
		if err == nil {
			return owners[slot], nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// AwaitOwner waits until all running nodes agree on a master of a slot other than a given one,
// which may be nil, and until that node is healthy and takes itself for the master.
func (c *RedisCluster) AwaitOwner(ctx context.Context, slot int, not *RedisServer) (owner *RedisServer, err error) {
	err = await(ctx, nil, func(ctx context.Context) error {
		owner = nil
		for _, s := range c.Nodes() {
			owners, err := c.owners(ctx, s)
			if absent(err) {
				continue
			}
			if err != nil {
				return err
			}
			switch o := owners[slot]; {
			case o == nil || o == not || owner != nil && o != owner:
				return fmt.Errorf("%s says that slot %d is with %v", s, slot, o)
			default:
				owner = o
			}
		}
		if owner == nil {
			return errors.New("no node runs")
		}
		info, err := owner.fields(ctx, "CLUSTER", "INFO")
		if err == nil && info["cluster_state"] != "ok" {
			err = fmt.Errorf("%s: the state is %s", owner, info["cluster_state"])
		}
		return err
	})
	return owner, err
}

// owners returns the masters of all slots, according to a node; nil for slots without one.
func (c *RedisCluster) owners(ctx context.Context, s *RedisServer) (owners [slots]*RedisServer, err error) {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	v, err := s.Do(ctx, "CLUSTER", "NODES")
	if err != nil {
		return owners, err
	}
	byID := map[string]*RedisServer{}
	for s, id := range c.ids {
		byID[id] = s
	}
	// id address flags master ping pong epoch link slot|lo-hi ... [slot->-id]
	for line := range strings.Lines(fmt.Sprint(v)) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		for _, part := range f[8:] {
			first, last, isRange := strings.Cut(part, "-")
			if !isRange {
				last = first
			}
			lo, err1 := strconv.Atoi(first)
			hi, err2 := strconv.Atoi(last)
			if err1 != nil || err2 != nil || lo < 0 || hi >= slots {
				continue // a slot that moves is also listed in brackets
			}
			for slot := lo; slot <= hi; slot++ {
				owners[slot] = byID[f[0]]
			}
		}
	}
	return owners, nil
}

// Stop stops all nodes.
func (c *RedisCluster) Stop() error { return stopAll(c.Nodes()) }
