package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/weirflow/weir/policy"
)

const (
	// sweepKeys is how many keys all combinations keep together of each limit that has no MaxKeys of its own.
	sweepKeys = 4 << 20
	// sweepClients is how many clients are told apart; of more, a sample is counted.
	sweepClients = 256 << 10
)

// Sweep runs access logs through all combinations of a grid, in one pass. Options.Policy and Options.Decisions are
// not used. Errors are those of Replay.
//
// Its memory is bounded: all combinations together keep about four million keys of each limit, and
// SweepReport.Forgotten counts what did not fit. Clients are counted one by one up to about a quarter of a million.
// Beyond that, those of a sample are, at least half as many, and SweepReport.Sampled says so.
func Sweep(ctx context.Context, o Options, g *Grid) (*SweepReport, error) {
	return sweepWith(ctx, o, g, sweepKeys, sweepClients)
}

func sweepWith(ctx context.Context, o Options, g *Grid, keys, clients int) (*SweepReport, error) {
	o.Decisions = nil
	o.Policy = g.policy
	s := &sweep{grid: g, keys: keys, max: clients}
	defer s.close()
	readErr, err := runPass(ctx, &o, layoutFor(o.Policy), s)
	if err != nil {
		return nil, err
	}
	return s.report, readErr
}

// describe writes a combination as in NewGrid.
func describe(parameters, values []string) string {
	var words []string
	for i, name := range parameters {
		words = append(words, name+"="+values[i])
	}
	return strings.Join(words, " ")
}

// sweep is the pass of Sweep.
type sweep struct {
	grid    *Grid
	keys    int // of all combinations together
	max     int // of clients
	run     *runner
	engines []*policy.Engine
	clients *clientSets
	report  *SweepReport
}

func (s *sweep) start(run *runner) error {
	s.close()
	g := s.grid
	s.run, s.engines = run, nil
	s.clients = newClientSets(s.max, len(g.combinations()))
	s.report = &SweepReport{Limit: g.Limit, Parameters: g.Parameters}
	for _, values := range g.combinations() {
		p, err := g.policyOf(values)
		if err != nil {
			return fmt.Errorf("with %s: %w", describe(g.Parameters, values), err)
		}
		engine, err := newEngine(p, run.clock, policy.Options{Parts: len(s.engines) == 0, MaxKeys: max(1, s.keys/len(g.combinations()))})
		if err != nil {
			return fmt.Errorf("with %s: %w", describe(g.Parameters, values), err)
		}
		s.engines = append(s.engines, engine)
		s.report.Combinations = append(s.report.Combinations, Combination{Values: values})
	}
	return nil
}

func (s *sweep) close() {
	for _, e := range s.engines {
		e.Close()
	}
}

// decide decides one request with each combination.
func (s *sweep) decide(q *query) error {
	s.report.request(q.at)
	limitedBy := s.clients.of(q.req.Client)
	for i, engine := range s.engines {
		c := &s.report.Combinations[i]
		v, err := s.run.decide(engine, q)
		if err != nil {
			return err
		}
		switch v.Outcome {
		case policy.Deny:
			c.Limited++
			if limitedBy != nil {
				limitedBy[i/64] |= 1 << (i % 64)
			}
		case policy.Delay:
			c.Delayed++
		}
	}
	return nil
}

// end completes the report.
func (s *sweep) end(u *Reading) error {
	r := s.report
	r.read(u)
	r.Missing = s.engines[0].Missing()
	for i, engine := range s.engines {
		for _, c := range engine.Counts() {
			r.Combinations[i].Forgotten += int64(c.Keys.EvictedFull)
		}
		r.Forgotten += r.Combinations[i].Forgotten
	}
	r.Sampled = s.clients.halvings > 0
	r.Clients = s.clients.count(func(i int, n int64) { r.Combinations[i].Clients = n })
	return nil
}

// clientSets counts clients, and for each combination those that it limited. It keeps at most max
// clients. When there are more, it keeps those with a hash that ends with a zero bit, then with two, and so on:
// a sample in which each client is as likely as any other, however many requests it has sent.
type clientSets struct {
	max      int
	words    int // of each set
	halvings int // how many last bits of a kept hash are zero
	index    map[uint64]int
	sets     []uint64 // for each client, the combinations that limited it
}

func newClientSets(most, combinations int) *clientSets {
	return &clientSets{max: most, words: (combinations + 63) / 64, index: make(map[uint64]int)}
}

// of returns the set of the combinations that limited a client; nil if it is not in the sample. The set is
// valid until the next call.
func (c *clientSets) of(client string) []uint64 {
	// one that nobody can choose names for, and that is the same in each run
	sum := sha256.Sum256([]byte(client))
	hash := binary.LittleEndian.Uint64(sum[:])
	i, ok := c.index[hash]
	if !ok {
		for c.samples(hash) && len(c.index) >= c.max {
			c.halve()
		}
		if !c.samples(hash) {
			return nil
		}
		i = len(c.index)
		c.index[hash] = i
		c.sets = append(c.sets, make([]uint64, c.words)...)
	}
	return c.sets[i*c.words : (i+1)*c.words]
}

// samples reports whether a client with a hash is one of the sample.
func (c *clientSets) samples(hash uint64) bool { return bits.TrailingZeros64(hash) >= c.halvings }

// halve drops about half of the sample.
func (c *clientSets) halve() {
	c.halvings++
	index := make(map[uint64]int, len(c.index)/2)
	var sets []uint64
	for hash, i := range c.index {
		if c.samples(hash) {
			index[hash] = len(index)
			sets = append(sets, c.sets[i*c.words:(i+1)*c.words]...)
		}
	}
	c.index, c.sets = index, sets
}

// count returns how many clients there were, and calls f with how many each combination limited.
func (c *clientSets) count(f func(combination int, n int64)) (clients int64) {
	for i := range c.words * 64 {
		n := int64(0)
		for at := i / 64; at < len(c.sets); at += c.words {
			n += int64(c.sets[at] >> (i % 64) & 1)
		}
		if n > 0 {
			f(i, n<<c.halvings)
		}
	}
	return int64(len(c.index)) << c.halvings
}
