package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weirflow/weir/policy"
)

// check starts the health checks of a target, or restarts them if the policy has changed them. The
// caller holds the upstream's lock.
func (u *Upstream) check(t *Target, old *settings) {
	s := u.settings.Load()
	h := s.spec.Health
	if h.Path == "" {
		t.stopChecks()
		return
	}
	if t.stop != nil && old != nil && old.spec.Health == h && old.transport == s.transport {
		return
	}
	up, row := t.up, t.checks
	t.stopChecks()
	t.up, t.checks = up, row // until the first new checks
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	u.checks.Go(func() { u.checkOften(ctx, t, h, roundTripper(s.roundTrip)) })
}

// stopChecks stops the health checks. A target without checks is up. The caller holds the
// upstream's lock.
func (t *Target) stopChecks() {
	if t.stop != nil {
		t.stop()
	}
	t.stop, t.up, t.checks = nil, true, 0
}

// checkOften checks a target at once and then at each interval, until the context ends.
func (u *Upstream) checkOften(ctx context.Context, t *Target, h policy.Health, transport http.RoundTripper) {
	ticker := time.NewTicker(either(h.Every, 5*time.Second))
	defer ticker.Stop()
	for {
		err := ask(ctx, t.url, &h, transport)
		if ctx.Err() != nil {
			return
		}
		if !isOurs(local(err)) { // a check that was not sent says nothing about the target
			u.checked(ctx, t, &h, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// maxCheckBody limits how much of a check's response is read. A response that is read to its end
// leaves its connection usable.
const maxCheckBody = 64 << 10

// ask checks a target once. The error says why the response is not good.
func ask(ctx context.Context, target *url.URL, h *policy.Health, transport http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, either(h.Timeout, 2*time.Second))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.Scheme+"://"+target.Host+h.Path, nil)
	if err != nil {
		return err
	}
	r.Host = either(h.Host, target.Host)
	r.Header.Set("User-Agent", "weir-health")
	resp, err := transport.RoundTrip(r)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("no response in time")
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxCheckBody)); err != nil {
		return fmt.Errorf("the response ended early: %w", err)
	}
	return nil
}

// checked records the result of a check. It ignores a result that comes after the context of the
// checks has ended.
func (u *Upstream) checked(ctx context.Context, t *Target, h *policy.Health, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if good := err == nil; good == t.up {
		t.checks = 0
		return
	}
	t.checks++
	switch {
	case err != nil && t.checks >= either(h.DownAfter, 3):
		t.up, t.checks = false, 0
		u.opts.Log.Warn("upstream target is down", "upstream", u.name, "target", t.url.Host, "why", "its health check: "+Reason(err))
	case err == nil && t.checks >= either(h.UpAfter, 2):
		t.up, t.checks = true, 0
		u.opts.Log.Info("upstream target is up", "upstream", u.name, "target", t.url.Host, "why", "its health checks are good")
	}
}
