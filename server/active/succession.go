package active

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// Two processes on one connection: the new one asks for the counts of the quotas in memory, and gets them.
// From then on, the old one sends its charges of quotas to it, one batch after the other.
type (
	lineHello struct {
		Weir    string `json:"weir"` // "quotas"
		Version int    `json:"version"`
	}
	lineCounts struct {
		Counts []byte `json:"counts"` // a snapshot
	}
	lineCharges struct {
		Charges []lineCharge `json:"charges"`
	}
	lineCharge struct {
		Op      weir.Op       `json:"op"`
		Name    string        `json:"name"`
		Key     []byte        `json:"key"`
		Plan    string        `json:"plan,omitempty"`
		Cost    int64         `json:"cost"`
		Group   int           `json:"group,omitempty"`
		Within  time.Duration `json:"within,omitempty"`
		Keep    bool          `json:"keep,omitempty"`
		Receipt weir.Receipt  `json:"receipt,omitempty"`
	}
	lineResults struct {
		Results []lineResult `json:"results"`
	}
	lineResult struct {
		Decision weir.Decision `json:"decision"`
		Delay    time.Duration `json:"delay,omitempty"`
		Receipt  weir.Receipt  `json:"receipt,omitempty"`
		Error    string        `json:"error,omitempty"` // of a charge that was not carried out
		NoQuota  bool          `json:"no_quota,omitempty"`
	}
)

const (
	lineOf      = "quotas"
	lineVersion = 1
	// how long the other process may take for an answer. A machine may stand still for some seconds. Much less
	// than the time in which a new process has to serve (takeOverTimeout in package server)
	lineTimeout = 10 * time.Second
)

var errOtherVersion = errors.New("the other process speaks another version of the protocol")

// A HandOver is the handover of the quotas in memory to a new process. Either Done or Abandon is called, once.
type HandOver struct {
	p    *Policy
	line net.Conn
	in   *json.Decoder
	of   *policy.HandOver
}

// HandOver waits until a new process asks for the counts of the quotas in memory, and sends them. Until
// Done or Abandon, requests for these limits wait. After an error, this process goes on with them.
func (p *Policy) HandOver(line net.Conn) (*HandOver, error) {
	h := &HandOver{p: p, line: line, in: json.NewDecoder(line)}
	var hello lineHello
	if err := h.in.Decode(&hello); err != nil {
		return nil, fmt.Errorf("the new process has not asked for them: %w", err)
	}
	if hello != (lineHello{lineOf, lineVersion}) {
		return nil, errOtherVersion
	}
	var counts bytes.Buffer
	var err error
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.of, err = p.Engine().HandOver(&counts); err != nil {
		return nil, err
	}
	p.snapshots.passed = true
	_ = line.SetWriteDeadline(time.Now().Add(lineTimeout))
	if err := json.NewEncoder(line).Encode(lineCounts{counts.Bytes()}); err != nil {
		p.snapshots.passed = false
		h.of.Abandon()
		return nil, err
	}
	return h, nil
}

// Done lets the new process decide about the quotas from now on.
func (h *HandOver) Done() {
	h.of.Done(&successor{line: h.line, in: h.in, out: json.NewEncoder(h.line)})
}

// Abandon goes on with the quotas in this process.
func (h *HandOver) Abandon() {
	h.p.mu.Lock()
	h.p.snapshots.passed = false
	h.p.mu.Unlock()
	h.of.Abandon()
}

// A successor is the store of quotas in another process.
type successor struct {
	mu   sync.Mutex
	line net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// Do sends a batch. After an error of the line, no further batch is sent.
func (s *successor) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	send := lineCharges{Charges: make([]lineCharge, len(batch))}
	for i := range batch {
		c := &batch[i]
		send.Charges[i] = lineCharge{c.Op, c.Name, []byte(c.Key), c.Plan, c.Cost, c.Group, c.Within, c.Keep, c.Receipt}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var results lineResults
	_ = s.line.SetDeadline(time.Now().Add(lineTimeout))
	err := s.out.Encode(send)
	if err == nil {
		err = s.in.Decode(&results)
	}
	if err == nil && len(results.Results) != len(batch) {
		err = errOtherVersion
	}
	if err != nil {
		return errors.Join(err, s.line.Close())
	}
	for i, r := range results.Results {
		c := &batch[i]
		if c.Err = nil; r.Error != "" {
			c.Err = fmt.Errorf("%w: %s", weir.ErrCharge, r.Error)
			if r.NoQuota {
				c.Err = fmt.Errorf("%w: %w", weir.ErrCharge, policy.ErrNoQuota)
			}
			err = errors.Join(err, c.Err)
			continue
		}
		out[i] = r.Decision
		if c.Op != weir.OpSettle {
			c.Delay, c.Receipt = r.Delay, r.Receipt
		}
	}
	return err
}

// Close closes the line.
func (s *successor) Close() error { return s.line.Close() }

// A Succession is what a new process does for the one before it.
type Succession struct {
	p     *Policy
	line  net.Conn
	in    *json.Decoder
	ended chan struct{}
}

// TakeOver takes the counts of the quotas in memory over from the process before this one. If that fails,
// it reads the snapshot file.
func (p *Policy) TakeOver(line net.Conn) (*Succession, error) {
	s := &Succession{p, line, json.NewDecoder(line), make(chan struct{})}
	counts, err := s.ask()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshots.passed = false
	if err == nil {
		err = p.restoreCounts(counts)
	}
	if errors.Is(err, errSnapshotFile) {
		return nil, err
	}
	if err != nil {
		p.log.Warn("the counts of quotas were not taken over from the process before", "error", err)
		line.Close()
		return s, p.restoreQuotas(p.File())
	}
	return s, nil
}

// ask asks the process before for the counts.
func (s *Succession) ask() ([]byte, error) {
	_ = s.line.SetDeadline(time.Now().Add(lineTimeout))
	var counts lineCounts
	if err := json.NewEncoder(s.line).Encode(lineHello{lineOf, lineVersion}); err != nil {
		return nil, err
	}
	err := s.in.Decode(&counts)
	_ = s.line.SetDeadline(time.Time{})
	return counts.Counts, err
}

// errSnapshotFile is found in the error about a snapshot file that cannot be written.
var errSnapshotFile = errors.New("the counts of quotas would not survive a restart")

func (p *Policy) restoreCounts(counts []byte) error {
	restored, err := p.Engine().ReadSnapshot(counts)
	if err != nil {
		return err
	}
	p.snapshots.wrote = time.Now()
	p.log.Info("quotas taken over", "keys", restored)
	if name := p.File().Policy.SnapshotFile; name != "" {
		if _, err := os.Stat(p.File().Beside(name)); errors.Is(err, fs.ErrNotExist) {
			if err := p.writeQuotas(); err != nil { // noticed now
				return fmt.Errorf("%w: %w", errSnapshotFile, err)
			}
		}
	}
	return nil
}

// Serve decides about quotas for the process before, until that has ended or Close is called.
func (s *Succession) Serve() {
	defer close(s.ended)
	out := json.NewEncoder(s.line)
	defer s.line.Close()
	for {
		var asked lineCharges
		if err := s.in.Decode(&asked); err != nil {
			break
		}
		if err := out.Encode(lineResults{s.carryOut(asked.Charges)}); err != nil {
			break
		}
	}
	_, forget := s.p.Engine().Quotas()
	forget()
}

// Ended is closed when Serve returns.
func (s *Succession) Ended() <-chan struct{} { return s.ended }

func (s *Succession) carryOut(asked []lineCharge) []lineResult {
	batch, decisions, results := make([]weir.Charge, len(asked)), make([]weir.Decision, len(asked)), make([]lineResult, len(asked))
	for i, c := range asked {
		batch[i] = weir.Charge{Op: c.Op, Name: c.Name, Key: string(c.Key), Plan: c.Plan, Cost: c.Cost, Group: c.Group, Within: c.Within, Keep: c.Keep, Receipt: c.Receipt}
	}
	quotas, _ := s.p.Engine().Quotas()
	failed := quotas.Do(context.Background(), batch, decisions)
	byCharge := false
	for i := range batch {
		byCharge = byCharge || batch[i].Err != nil
	}
	for i := range batch {
		results[i] = lineResult{Decision: decisions[i], Delay: batch[i].Delay, Receipt: batch[i].Receipt}
		switch err := batch[i].Err; {
		case err != nil:
			results[i].Error, results[i].NoQuota = err.Error(), errors.Is(err, policy.ErrNoQuota)
		case failed != nil && !byCharge:
			results[i].Error = failed.Error()
		}
	}
	return results
}

// Close ends Serve.
func (s *Succession) Close() error { return s.line.Close() }
