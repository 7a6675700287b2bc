package weircaddy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
)

// processes is the state that outlives a configuration, by the path of the policy file. Caddy keeps
// such state in a pool of the package: while a configuration is replaced, both hold it.
var processes = caddy.NewUsagePool()

// A process is a policy that is in force, with its states and stores, for as long as a configuration
// uses it.
type process struct {
	mu     sync.Mutex // held while the policy changes
	policy atomic.Pointer[active.Policy]
	live   []*part // the configurations that are in force or about to end, the oldest first
	quit   chan struct{}
	ticker sync.WaitGroup

	inFlight atomic.Int64
	ending   atomic.Bool
	ended    sync.Once
}

func newProcess() *process { return &process{quit: make(chan struct{})} }

// use makes the policy of a configuration active, and has its handlers decide by it. The lock is held.
func (p *process) use(file *policyfile.File, c *part) error {
	if now := p.policy.Load(); now != nil {
		if err := now.Update(context.Background(), file); err != nil {
			return err
		}
		return c.compile(now.Engine())
	}
	first, err := active.New(context.Background(), file, active.Options{Log: slog.New(currentLog{}), ConnectLater: true})
	if err != nil {
		return err
	}
	p.policy.Store(first)
	p.ticker.Go(p.tick)
	return c.compile(first.Engine())
}

// start puts a configuration in force.
func (p *process) start(c *part) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	file, err := c.load()
	if err != nil {
		return err
	}
	if err := p.use(file, c); err != nil {
		return err
	}
	c.file = file
	p.live = append(p.live, c)
	return nil
}

// settle waits for the stores, so that few requests are decided without them. Requests that come meanwhile
// do not wait for it.
func (p *process) settle() {
	if now := p.policy.Load(); now != nil {
		now.Settle(context.Background())
	}
}

// stop ends a configuration. If it is the latest one and another is still in force, then the new
// one could not be started, and the old one is put in force again.
func (p *process) stop(c *part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range p.live {
		if one != c {
			continue
		}
		p.live = append(p.live[:i:i], p.live[i+1:]...)
		if i == len(p.live) && i > 0 {
			back := p.live[i-1]
			if err := p.use(back.file, back); err != nil {
				caddy.Log().Named("weir").Error("the limits of before are not in force again: " + err.Error())
			}
		}
		return
	}
}

// tick looks about once a second at files that may have changed.
func (p *process) tick() {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-every.C:
			p.policy.Load().Tick()
			p.reread()
		}
	}
}

// reread looks whether the policy file has changed.
func (p *process) reread() {
	if p.replaced() {
		p.settle()
	}
}

// replaced makes a changed policy file active, and reports whether it did.
func (p *process) replaced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.live) == 0 {
		return false
	}
	c := p.live[len(p.live)-1]
	if !c.changed() {
		return false
	}
	file, err := c.load()
	if err == nil {
		err = p.use(file, c)
	}
	log := slog.New(currentLog{})
	if err != nil {
		log.Error("policy not reloaded: the running policy stays active", "file", c.path, "error", err.Error())
		return false
	}
	c.file = file
	log.Info("policy reloaded", "file", c.path)
	return true
}

// begin counts a request in flight; the caller calls end.
func (p *process) begin() { p.inFlight.Add(1) }

func (p *process) end() {
	if p.inFlight.Add(-1) == 0 && p.ending.Load() {
		p.close()
	}
}

// Destruct implements caddy.Destructor: no configuration uses the policy any more. Caddy does not wait for
// the requests of an old configuration, so the last of them closes what it uses.
func (p *process) Destruct() error {
	p.ending.Store(true)
	if p.inFlight.Load() <= 0 || caddy.Exiting() {
		p.close()
	}
	return nil
}

// close ends everything that was started.
func (p *process) close() {
	p.ended.Do(func() {
		close(p.quit)
		p.ticker.Wait()
		if now := p.policy.Load(); now != nil {
			if err := now.Close(); err != nil {
				caddy.Log().Named("weir").Warn("closing the limits failed: " + err.Error())
			}
		}
	})
}

// engine returns what decides now; an error before a configuration is in force.
func (p *process) engine() (*policy.Engine, error) {
	now := p.policy.Load()
	if now == nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no limits are in force")}
	}
	return now.Engine(), nil
}

// currentLog writes to the log of the configuration that is in force: the policy outlives the logs of
// the one that it was made by.
type currentLog struct{}

func (currentLog) handler() slog.Handler {
	return zapslog.NewHandler(caddy.Log().Named("weir").Core(), zapslog.WithName("weir"), zapslog.AddStacktraceAt(slog.Level(127)))
}

// Enabled implements slog.Handler.
func (l currentLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler().Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l currentLog) Handle(ctx context.Context, r slog.Record) error {
	return l.handler().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l currentLog) WithAttrs(attrs []slog.Attr) slog.Handler { return l.handler().WithAttrs(attrs) }

// WithGroup implements slog.Handler.
func (l currentLog) WithGroup(name string) slog.Handler { return l.handler().WithGroup(name) }
