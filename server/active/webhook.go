package active

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

const (
	webhookQueue   = 1024
	webhookTries   = 5
	webhookTimeout = 5 * time.Second
	webhookBackoff = time.Second // before the second try; then twice as long each time
)

// A webhook sends warnings of limits to a URL, one after another, in the background.
type webhook struct {
	log     *slog.Logger
	url     func() string // of the active policy; empty for none
	secret  func() string // the file that calls are signed with; empty: they are not signed
	queue   chan policy.Warning
	client  *http.Client
	backoff time.Duration
	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup

	sent, failed, dropped atomic.Uint64
}

// newWebhook starts a webhook.
func newWebhook(log *slog.Logger, url, secret func() string, backoff time.Duration) *webhook {
	h := &webhook{log: log, url: url, secret: secret, queue: make(chan policy.Warning, webhookQueue), backoff: backoff, client: &http.Client{
		Timeout:       webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	h.life, h.end = context.WithCancel(context.Background())
	h.work.Go(h.run)
	return h
}

// warn queues a warning. It never waits: a full queue drops it.
func (h *webhook) warn(w policy.Warning) {
	if h.url() == "" {
		return
	}
	select {
	case h.queue <- w:
	default:
		h.dropped.Add(1)
	}
}

// close ends the webhook. Warnings that were not sent are dropped.
func (h *webhook) close() {
	h.end()
	h.work.Wait()
	h.client.CloseIdleConnections()
}

func (h *webhook) run() {
	for {
		select {
		case w := <-h.queue:
			h.deliver(w)
		case <-h.life.Done():
			return
		}
	}
}

// deliver sends a warning, with retries that are further and further apart.
func (h *webhook) deliver(w policy.Warning) {
	body, err := warningJSON(w)
	pause := h.backoff
	for try := 1; err == nil; try++ {
		if err = h.post(body); err == nil {
			h.sent.Add(1)
			return
		}
		if try == webhookTries || h.life.Err() != nil {
			break
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // jitter: several gateways do not call at once
		select {
		case <-timer.C:
		case <-h.life.Done():
		}
		timer.Stop()
		pause, err = 2*pause, nil
	}
	if h.failed.Add(1); h.life.Err() == nil {
		h.log.Warn("a warning of a limit was not delivered to the webhook", "limit", w.Limit, "error", err)
	}
}

// warningJSON returns the body of a call. The time is rounded up to whole seconds: nothing is back before.
func warningJSON(w policy.Warning) ([]byte, error) {
	d := w.Decision
	return json.Marshal(struct {
		Limit     string   `json:"limit"`
		Key       []string `json:"key"`
		Plan      string   `json:"plan,omitempty"`
		Allowed   int64    `json:"allowed"`
		Used      int64    `json:"used"`
		Remaining int64    `json:"remaining"`
		ResetAt   string   `json:"reset_at"`
	}{w.Limit, w.Key, w.Plan, d.Limit, d.Limit - d.Remaining, d.Remaining, w.At.Add(d.ResetAfter + time.Second - 1).UTC().Truncate(time.Second).Format(time.RFC3339)})
}

func (h *webhook) post(body []byte) error {
	r, err := http.NewRequestWithContext(h.life, http.MethodPost, h.url(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the URL is not valid")
	}
	r.Header.Set("Content-Type", "application/json")
	if file := h.secret(); file != "" {
		secret, err := policyfile.ReadHashSecret(file)
		if err != nil {
			return err // a call is never sent unsigned
		}
		r.Header.Set("Weir-Signature", signature(secret, time.Now().Unix(), body))
	}
	resp, err := h.client.Do(r)
	if err != nil {
		return fmt.Errorf("it does not respond")
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it responded with status %d", resp.StatusCode)
	}
	return nil
}

// signature signs a call and its time, so that a call that was recorded can be told from a new one.
func signature(secret []byte, now int64, body []byte) string {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%d.", now)
	h.Write(body)
	return fmt.Sprintf("t=%d,v1=%x", now, h.Sum(nil))
}

// Webhook counts the warnings that were delivered, not delivered after all retries, and dropped because
// too many were waiting.
func (p *Policy) Webhook() (sent, failed, dropped uint64) {
	return p.hook.sent.Load(), p.hook.failed.Load(), p.hook.dropped.Load()
}
