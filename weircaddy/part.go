package weircaddy

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/weirhttp"
)

// A part is what one configuration takes of a process: its limits, and its handlers, each of which is
// a route of the policy.
type part struct {
	app     *App
	path    string // of the policy file; empty for the limits of the configuration
	process *process
	places  []*place // guarded by app.mu until activate

	once   sync.Once
	failed error

	file *policyfile.File // in force; guarded by process.mu
}

// label names the policy in metrics.
func (p *part) label() string {
	if p.path == "" {
		return "caddy"
	}
	return p.path
}

// A place is a handler in the configuration.
type place struct {
	route *node // in the words of a policy; nil for the routes of a policy file

	options func(route int) []weirhttp.Option
	limit   atomic.Pointer[func(http.Handler) http.Handler]
	status  atomic.Pointer[map[string]int] // of refused requests, by limit, where it is not 429
}

// add adds a handler.
func (p *part) add(c *place) {
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	p.places = append(p.places, c)
}

// activate puts the part in force. Apps start in any order, so a request may come before Start.
func (p *part) activate() error {
	p.once.Do(func() { p.failed = p.process.start(p) })
	return p.failed
}

// release ends the part. If it was never in force, it never will be.
func (p *part) release() {
	p.once.Do(func() { p.failed = errEnded })
	p.process.stop(p)
}

var errEnded = fmt.Errorf("this configuration has ended")

// load returns the policy: that of the file, or one with a route for each handler.
func (p *part) load() (*policyfile.File, error) {
	if p.path == "" {
		var routes []*node
		for _, c := range p.places {
			routes = append(routes, c.route)
		}
		return composed(p.app.shared, p.app.limits(), routes).parse()
	}
	return loadFile(p.path)
}

// loadFile reads a policy file that can be served here.
func loadFile(path string) (*policyfile.File, error) {
	file, err := policyfile.LoadRegular(path)
	if err != nil {
		return nil, err
	}
	if wrong := active.Check(file); len(wrong) > 0 {
		return nil, &policyfile.InvalidError{Problems: wrong}
	}
	return file, nil
}

// changed reports whether the policy file differs from what was read.
func (p *part) changed() bool {
	if p.path == "" {
		return false
	}
	data, err := os.ReadFile(p.path)
	return err == nil && !bytes.Equal(data, p.file.Data)
}

// compile has the handlers decide by an engine. The process's lock is held.
func (p *part) compile(engine *policy.Engine) error {
	next := make([]func(http.Handler) http.Handler, len(p.places))
	for i, c := range p.places {
		route := i // each handler that names limits is a route
		if p.path != "" {
			route = -1
		}
		limit, err := weirhttp.Policy(engine, c.options(route)...)
		if err != nil {
			return err
		}
		next[i] = limit
	}
	compiled := engine.Policy()
	status := map[string]int{}
	for i := range compiled.Limits {
		if l := &compiled.Limits[i]; l.Status != 0 {
			status[l.Name] = l.Status
		}
	}
	for i, c := range p.places {
		c.status.Store(&status)
		c.limit.Store(&next[i])
	}
	return nil
}
