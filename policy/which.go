package policy

// Match returns the index of the first route that matches a request, and -1 where none does. It asks no limit.
func (e *Engine) Match(req Request) int {
	r := request{Request: req}
	for i := range e.routes {
		if e.routes[i].pattern.matches(&r) {
			return i
		}
	}
	return -1
}
