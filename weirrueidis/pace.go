package weirrueidis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A pace bounds how often one address is connected to, whatever the client above asks for: rueidis
// connects again for each call that finds no connection, and some of its loops do so without a
// delay. The first connections are free, so that one that is lost is replaced at once; after them
// the delay between two attempts doubles, until there has been none for a while. It makes no
// difference whether an attempt succeeds: a server that accepts and closes would otherwise be
// connected to as fast as one that refuses.
type pace struct {
	made int       // attempts since there was none for calm
	last time.Time // when the latest began
	next time.Time // before this there is none
	err  error     // how the latest failed
}

const (
	freeAttempts = 3
	firstDelay   = 10 * time.Millisecond
	lastDelay    = 250 * time.Millisecond
	calm         = 2 * time.Second
	maxPaces     = 1024
)

// paces are those of a client's addresses.
type paces struct {
	mu     sync.Mutex
	byAddr map[string]*pace
}

var errTooSoon = errors.New("connected too often in a short time")

// begin counts an attempt, or returns why there is none yet.
func (p *paces) begin(addr string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	a := p.byAddr[addr]
	if a == nil || now.Sub(a.last) > calm {
		a = &pace{}
		p.add(addr, a, now)
	}
	if wait := a.next.Sub(now); wait > 0 {
		err := a.err
		if err == nil {
			err = errTooSoon
		}
		return fmt.Errorf("next attempt in %v: %w", wait.Round(time.Millisecond), err)
	}
	a.made++
	a.last = now
	if n := a.made - freeAttempts; n >= 0 {
		a.next = now.Add(delay(firstDelay, lastDelay, n))
	}
	return nil
}

// add keeps the pace of an address. Nodes of a cluster come and go: those that were not connected
// to lately are dropped.
func (p *paces) add(addr string, a *pace, now time.Time) {
	if p.byAddr == nil {
		p.byAddr = map[string]*pace{}
	}
	if len(p.byAddr) >= maxPaces {
		for addr, a := range p.byAddr {
			if now.Sub(a.last) > calm {
				delete(p.byAddr, addr)
			}
		}
	}
	p.byAddr[addr] = a
}

// ended notes how the latest attempt ended.
func (p *paces) ended(addr string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.byAddr[addr]; a != nil {
		a.err = err
	}
}

// delay returns the n-th delay of a backoff that doubles from the first to the last. Half of it is
// random, so that nodes that lost a server at the same moment do not come back at the same moment.
func delay(first, last time.Duration, n int) time.Duration {
	d := last
	if n < 30 {
		d = min(first<<n, last)
	}
	return jitter(d)
}

// jitter returns a random time from half of d to d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
