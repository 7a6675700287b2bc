package weirredis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weirflow/weir/internal/rules"
)

// A script is put together from files: a common part, the algorithms that the call is about, and
// what carries the call out (mainLua). So a call about token buckets does not pay for the other algorithms: Redis defines all
// functions of a script anew in each run.
//
//go:embed lua/*.lua
var luaFiles embed.FS

// lua is the text of a file.
func lua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(fmt.Sprintf("weirredis: no script of that name: %v", err)) // a test puts all together
	}
	return string(text)
}

// Script is a Lua script with the name under which a server keeps it.
type Script struct {
	Source string
	SHA    string // of the source, in hexadecimal digits
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// What is written here of the numbers by which the scripts know kinds of limits; the others are the
// algorithms' own.
const (
	kindBucket = 1 // the kinds that have a short way
	kindFixed  = 3
	kindAll    = 8
)

// kindScripts are the scripts of each kind, in the order in which they are put together: that of
// All comes last.
func kindScripts() (all []rules.Script) {
	for _, k := range rules.Kinds() {
		if k.Script.Name != "" && !slices.Contains(all, k.Script) {
			all = append(all, k.Script)
		}
	}
	slices.SortFunc(all, func(a, b rules.Script) int { return a.Number - b.Number })
	return append(all, rules.Script{Name: "all", Number: kindAll})
}

// A kindSet is a set of algorithms; full is all of them, with the conversion from one limit to
// another.
type kindSet uint16

const full kindSet = 1 << 15

// short stands for take.lua: takes and peeks of buckets.
const short kindSet = 0

// shortFixed stands for fixedtake.lua: those of fixed windows.
const shortFixed kindSet = 1 << 14

func (s kindSet) has(kind int) bool { return s&full != 0 || s&(1<<kind) != 0 }

// timeLine is the line that reads the server's clock. Tests replace it.
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
	made, _ := s.made.LoadOrStore(key, newScript(strings.Replace(lua("nodes"), timeLine, s.clock, 1)))
	return made.(*Script)
}

// ping is the script of Ping. It reads no clock.
func (s *scripts) ping() *Script {
	const key = "ping"
	if made, ok := s.made.Load(key); ok {
		return made.(*Script)
	}
	made, _ := s.made.LoadOrStore(key, newScript(lua("ping")))
	return made.(*Script)
}

// mainLua is the part of a script that carries out a call: it reads the call, asks the algorithms, and
// stores the states.
func mainLua() string { return lua("call") + lua("ask") + lua("main") }

// source puts a script together.
func (s *scripts) source(kinds kindSet) string {
	if kinds == short {
		return strings.Replace(lua("take"), timeLine, s.clock, 1)
	}
	if kinds == shortFixed {
		return strings.Replace(lua("fixedtake"), timeLine, s.clock, 1)
	}
	var b strings.Builder
	b.WriteString(strings.Replace(lua("head"), timeLine, s.clock, 1))
	limbs, lists := kinds&full != 0, kinds&full != 0
	for _, f := range kindScripts() {
		limbs = limbs || f.Limbs && kinds.has(f.Number)
		lists = lists || f.Lists && kinds.has(f.Number)
	}
	if limbs {
		b.WriteString(lua("num"))
	}
	if lists {
		b.WriteString(lua("list"))
	}
	for _, f := range kindScripts() {
		if kinds.has(f.Number) {
			b.WriteString(lua(f.Name))
		}
	}
	if kinds&full != 0 {
		b.WriteString(lua("change"))
		b.WriteString(lua("versions"))
	}
	b.WriteString(lua("keyclock"))
	b.WriteString(mainLua())
	return b.String()
}
