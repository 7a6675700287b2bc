package policy

// RouteOf returns the index of the first route that matches a request, -1 where none does. It asks no limit and counts nothing.
func (e *Engine) RouteOf(req Request) int {
	r := request{Request: req}
	for i := range e.routes {
		if e.routes[i].pattern.matches(&r) {
			return i
		}
	}
	return -1
}
