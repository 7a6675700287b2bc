package listen

import (
	"net/netip"
	"slices"
	"sync"
)

// places counts open connections, in total and per client.
type places struct {
	max, maxClient int // 0 is no bound
	trusted        []netip.Prefix

	mu      sync.Mutex
	total   int
	clients map[netip.Prefix]int // clients with an open connection
}

// enter takes a place for a connection. enterClient counts the client once its address is known.
func (p *places) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.max > 0 && p.total >= p.max {
		return false
	}
	p.total++
	return true
}

func (p *places) leave() {
	p.mu.Lock()
	p.total--
	p.mu.Unlock()
}

// enterClient takes one of a client's places. The function that it returns releases it.
func (p *places) enterClient(addr netip.Addr) (leave func(), ok bool) {
	if p.maxClient == 0 || !addr.IsValid() || p.trusts(addr) {
		return func() {}, true
	}
	client := clientOf(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients[client] >= p.maxClient {
		return nil, false
	}
	p.clients[client]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.clients[client]--; p.clients[client] == 0 {
			delete(p.clients, client)
		}
	}, true
}

func (p *places) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p.trusted, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// clientOf is the prefix that an address counts for: IPv6 counts by /64, as in keys of limits.
func clientOf(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(addr, bits).Masked()
}

func (p *places) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
