package policy

import (
	"slices"
	"sync"

	"github.com/weirflow/weir/internal/list"
)

// modelField is the field of a request's body by which costs are learned, beside the key: models
// differ in how much they say.
const modelField = "model"

// Bounds on what is learned, per limit: about 1 MB.
const (
	maxLearned  = 4096 // keys with their models; the one that was not used for longest is evicted
	lastCosts   = 16   // of each
	quantileOf  = 10   // the estimate is exceeded by at most one of ten of the last costs
	fewestCosts = 3    // with fewer, nothing is known yet
)

// learned keeps the last costs of keys. It is safe for concurrent use.
type learned struct {
	mu    sync.Mutex
	keys  map[string]*costHistory
	order list.List[costHistory] // the most recently used one is in front
}

// costHistory is the last costs of a key.
type costHistory struct {
	node list.Node[costHistory]
	key  string
	last [lastCosts]int64
	n    int // how many costs there were
}

func newLearned() *learned { return &learned{keys: map[string]*costHistory{}} }

// learnedKey returns the key under which costs are learned.
func learnedKey(key []byte, r *request) string {
	var model string
	if f := r.body.field(modelField); !f.Unclear {
		model = f.Text
	}
	return string(seal(appendKey(appendKey(nil, string(key)), model)))
}

// add records a cost.
func (l *learned) add(key string, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.keys[key]
	if h == nil {
		if len(l.keys) == maxLearned {
			oldest := l.order.Last()
			l.order.Remove(&oldest.node)
			delete(l.keys, oldest.key)
		}
		h = &costHistory{key: key}
		l.keys[key] = h
	} else {
		l.order.Remove(&h.node)
	}
	l.order.PushFront(&h.node, h)
	h.last[h.n%lastCosts] = cost
	h.n++
}

// quantile returns the cost that at most one of ten of a key's last costs exceeded.
func (l *learned) quantile(key string) (cost int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.keys[key]
	if h == nil || h.n < fewestCosts {
		return 0, false
	}
	costs := h.last
	sorted := costs[:min(h.n, lastCosts)]
	slices.Sort(sorted)
	return sorted[len(sorted)-1-len(sorted)/quantileOf], true
}
