package usage

import "time"

// Logged is what a log says of a response. Numbers below 0 are not known.
type Logged struct {
	Prompt     int64 // tokens, with those of the cache
	Cached     int64 // of Prompt: read from a cache; not known counts as 0
	Written    int64 // of Prompt: written to a cache; not known counts as 0
	Completion int64
	Total      int64
	Bytes      int64 // of the body

	Duration time.Duration // until the end of the response
	Upstream time.Duration // until its header
}

// Logged returns the cost of a response of which only a log is left. known is false if the log lacks
// a number that the cost depends on.
func (s *Spec) Logged(l Logged) (cost int64, known bool) {
	for i := range s.terms {
		n := s.terms[i].logged(&l)
		if n < 0 {
			return 0, false
		}
		var fits bool
		if cost, fits = sum(cost, s.terms[i].weight, n); !fits {
			return 0, false
		}
	}
	return cost, true
}

// logged returns the number of a term; below 0: not known.
func (t *term) logged(l *Logged) int64 {
	switch t.source {
	case fromBytes:
		return l.Bytes
	case fromDuration:
		return loggedMilliseconds(l.Duration)
	case fromUpstreamTime:
		return loggedMilliseconds(l.Upstream)
	case fromPreset:
		return l.part(t.part)
	default: // a log does not have the body, nor the fields of the response
		return -1
	}
}

func loggedMilliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return milliseconds(d)
}

// part returns a part of the tokens; below 0: not known.
func (l *Logged) part(p part) int64 {
	cached, written := max(l.Cached, 0), max(l.Written, 0)
	switch p {
	case partCompletion:
		return l.Completion
	case partTotal:
		if l.Total >= 0 || l.Prompt < 0 || l.Completion < 0 {
			return l.Total
		}
		if n, ok := add(l.Prompt, l.Completion); ok {
			return n
		}
		return -1
	}
	switch {
	case l.Prompt < 0:
		return -1
	case p == partCached:
		return cached
	case p == partCacheWrite:
		return written
	}
	return max(l.Prompt-min(cached, l.Prompt)-min(written, l.Prompt), 0)
}
