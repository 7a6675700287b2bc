package plain

// registered is how many connections are watched.
func (h *hangups) registered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}
