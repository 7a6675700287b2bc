package active

// generations are a map of bounded size. When the younger half is full, the older half is dropped; what
// is read moves to the younger half. So what was used lately stays.
type generations[K comparable, V any] struct {
	most       int // about
	young, old map[K]V
}

func (g *generations[K, V]) get(key K) (v V, ok bool) {
	if v, ok = g.young[key]; ok {
		return v, true
	}
	if v, ok = g.old[key]; ok {
		g.put(key, v)
	}
	return v, ok
}

// peek is get, and does not count as a use.
func (g *generations[K, V]) peek(key K) (v V, ok bool) {
	if v, ok = g.young[key]; !ok {
		v, ok = g.old[key]
	}
	return v, ok
}

func (g *generations[K, V]) put(key K, v V) {
	delete(g.old, key)
	if _, there := g.young[key]; !there && len(g.young) >= g.most/2 {
		g.old, g.young = g.young, nil
	}
	if g.young == nil {
		g.young = map[K]V{}
	}
	g.young[key] = v
}

func (g *generations[K, V]) remove(key K) {
	delete(g.young, key)
	delete(g.old, key)
}

func (g *generations[K, V]) len() int { return len(g.young) + len(g.old) }
