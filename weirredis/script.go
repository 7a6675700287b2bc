package weirredis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"
)

// The scripts are put together from files: what all need, the limits that a call is about, and what asks them. So a call about token buckets
// does not pay for the others: Redis makes all functions of a script anew each time it runs.
var (
	//go:embed lua/head.lua
	headLua string
	//go:embed lua/num.lua
	numLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/interval.lua
	intervalLua string
	//go:embed lua/fixed.lua
	fixedLua string
	//go:embed lua/counter.lua
	counterLua string
	//go:embed lua/list.lua
	listLua string
	//go:embed lua/window.lua
	windowLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/warm.lua
	warmLua string
	//go:embed lua/all.lua
	allLua string
	//go:embed lua/change.lua
	changeLua string
	//go:embed lua/main.lua
	mainLua string
	//go:embed lua/nodes.lua
	nodesLua string
	//go:embed lua/take.lua
	takeLua string
)

// Script is a Lua script with the name under which a server keeps it.
type Script struct {
	Source string
	SHA    string // of the source, in hexadecimal digits
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// Kinds of limits, as the scripts number them.
const (
	kindBucket = 1 + iota
	kindInterval
	kindFixed
	kindCounter
	kindWindow
	kindLog
	kindWarm
	kindAll
)

// files are the scripts of each kind, in the order in which they are put together.
var files = [...]struct {
	kind   int
	source *string
	num    bool // it counts in limbs
}{
	{kindBucket, &bucketLua, false},
	{kindInterval, &intervalLua, false},
	{kindFixed, &fixedLua, false},
	{kindCounter, &counterLua, false},
	{kindWindow, &windowLua, false},
	{kindLog, &logLua, false},
	{kindWarm, &warmLua, true},
	{kindAll, &allLua, false},
}

// kindSet is a set of kinds; full is all of them, and changes from one to another.
type kindSet uint16

const full kindSet = 1 << 15

// short is no limits at all: the script of takes and peeks of buckets alone.
const short kindSet = 0

func (s kindSet) has(kind int) bool { return s&full != 0 || s&(1<<kind) != 0 }

// timeLine is the line that reads the server's clock. Tests put another one in its place.
const timeLine = "local clock = redis.call('TIME')\n"

// scripts makes each script once.
type scripts struct {
	clock string   // in place of timeLine
	made  sync.Map // kindSet, or a name, to *Script
}

func (s *scripts) of(kinds kindSet) *Script {
	if made, ok := s.made.Load(kinds); ok {
		return made.(*Script)
	}
	made, _ := s.made.LoadOrStore(kinds, newScript(s.source(kinds)))
	return made.(*Script)
}

// nodes is the script of Beat.
func (s *scripts) nodes() *Script {
	const key = "nodes"
	if made, ok := s.made.Load(key); ok {
		return made.(*Script)
	}
	made, _ := s.made.LoadOrStore(key, newScript(strings.Replace(nodesLua, timeLine, s.clock, 1)))
	return made.(*Script)
}

// source puts a script together.
func (s *scripts) source(kinds kindSet) string {
	if kinds == short {
		return strings.Replace(takeLua, timeLine, s.clock, 1)
	}
	var b strings.Builder
	b.WriteString(strings.Replace(headLua, timeLine, s.clock, 1))
	num := kinds&full != 0
	for _, f := range files {
		num = num || f.num && kinds.has(f.kind)
	}
	if num {
		b.WriteString(numLua)
	}
	if kinds.has(kindWindow) || kinds.has(kindLog) {
		b.WriteString(listLua)
	}
	for _, f := range files {
		if kinds.has(f.kind) {
			b.WriteString(*f.source)
		}
	}
	if kinds&full != 0 {
		b.WriteString(changeLua)
	}
	b.WriteString(mainLua)
	return b.String()
}
