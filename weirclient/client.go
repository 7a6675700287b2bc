package weirclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// Options are the settings of a Client. The zero value calls a server without tokens.
type Options struct {
	// Token is sent with each call. Over plain HTTP to another machine, that needs Insecure.
	Token string
	// TokenFunc returns the token of each call, in place of Token: for tokens that change.
	TokenFunc func(ctx context.Context) (string, error)
	// Insecure lets the token go over plain HTTP to another machine: the network is trusted.
	Insecure bool

	TLS *tls.Config // default: the system's certificates

	// Timeout is that of a call whose context has no deadline; default: 5 s
	Timeout time.Duration
	// Retries is how often a call is sent again that got no response, or was not carried out (502, 503,
	// 504). All attempts have one Idempotency-Key, so the call is charged once. default: 1; below 0: none
	Retries int
	// MaxIdle is how many connections are kept open without a call; default: 64
	MaxIdle int

	// HTTP replaces the HTTP client: TLS, MaxIdle and the rule about redirects are then its own.
	HTTP *http.Client
}

const (
	defaultTimeout = 5 * time.Second
	defaultIdle    = 64
	maxResponse    = 16 << 20

	firstPause = 10 * time.Millisecond // before a call is sent again
)

// A Client calls one server, or several behind one address. It is safe for concurrent use, and reuses
// connections.
type Client struct {
	base string // without a slash at its end
	o    Options
	http *http.Client
	own  *http.Transport // nil if the HTTP client was given
}

// New returns a client of the server at an address: http://HOST:PORT or https://HOST:PORT. It does not
// connect yet.
func New(address string, o Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("weirclient: %.100q is not the address of a server: write it like http://127.0.0.1:8082", address)
	}
	if u.Path == "/v1" || strings.Contains(u.Path, "/v1/") {
		return nil, fmt.Errorf("weirclient: %.100q is an operation, and not the address of a server: write it without /v1", address)
	}
	if (o.Token != "" || o.TokenFunc != nil) && u.Scheme == "http" && !o.Insecure && !isLocal(u.Hostname()) {
		return nil, fmt.Errorf("weirclient: the token would go to %s unencrypted: write https://, or set Insecure if the network is trusted", u.Host)
	}
	o.Timeout, o.MaxIdle = cmp.Or(o.Timeout, defaultTimeout), cmp.Or(o.MaxIdle, defaultIdle)
	if o.Retries == 0 {
		o.Retries = 1
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), o: o, http: o.HTTP}
	if c.http == nil {
		c.own = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			TLSClientConfig:     o.TLS,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: o.MaxIdle,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		}
		c.http = &http.Client{Transport: c.own, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c, nil
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// Close closes idle connections. Calls in flight go on.
func (c *Client) Close() error {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// An Error is a response that is no decision: the call is wrong, not permitted, or could not be carried
// out. Nothing was charged, but for a Settle with the wrong number of costs.
type Error struct {
	Op     string // the operation, such as take
	Status int    // of HTTP
	Detail string // what is wrong
	Field  string // where, as in limits[1].key; may be empty
	Fix    string // what to send instead; may be empty
}

// Error says what is wrong, where, and what to do.
func (e *Error) Error() string {
	text := fmt.Sprintf("weirclient: %s: ", e.Op)
	if e.Field != "" {
		text += e.Field + ": "
	}
	text += cmp.Or(e.Detail, http.StatusText(e.Status))
	if e.Fix != "" {
		text += " (" + e.Fix + ")"
	}
	return fmt.Sprintf("%s [%d]", text, e.Status)
}

// Is makes errors.Is find ErrUnavailable in a response that says that the call was not carried out, such as
// that of a Settle while the server's store is down.
func (e *Error) Is(target error) bool { return target == ErrUnavailable && unavailable(e.Status) }

// ErrUnavailable means that the server could not be reached, did not respond in time, or answered 502, 503
// or 504, itself or a proxy before it. errors.Is finds it beside the cause. The call was charged at most
// once. A context that the caller cancels is no ErrUnavailable.
var ErrUnavailable = errors.New("weirclient: the limit service is unavailable")

// call sends a call, and reads the response into out. ok are the statuses that have one; all others are
// errors.
func (c *Client) call(ctx context.Context, op, method, path string, in, out any, ok ...int) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("weirclient: %s: %w", op, err)
		}
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.o.Timeout)
		defer cancel()
	}
	key := rand.Text()
	wait := firstPause
	for attempt := 0; ; attempt++ {
		again, err := c.attempt(ctx, op, method, path, key, body, out, ok)
		if err == nil || !again || attempt >= c.o.Retries || !sleep(ctx, wait) {
			return err
		}
		wait *= 2
	}
}

// sleep waits; false if the context ends first, or would: then at once.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	return pause.For(ctx, d) == nil
}

// attempt sends a call once. again is whether it may be sent again.
func (c *Client) attempt(ctx context.Context, op, method, path, key string, body []byte, out any, ok []int) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("weirclient: %s: %w", op, err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
	}
	token := c.o.Token
	if c.o.TokenFunc != nil {
		if token, err = c.o.TokenFunc(ctx); err != nil {
			return false, fmt.Errorf("weirclient: %s: the token: %w", op, err)
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return true, c.unreached(op, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return true, c.unreached(op, err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	for _, status := range ok {
		if resp.StatusCode == status && kind == "application/json" {
			if err := json.Unmarshal(data, out); err != nil {
				return false, fmt.Errorf("weirclient: %s: %s is no limit service: its response cannot be read: %w", op, c.base, err)
			}
			return false, nil
		}
	}
	return unavailable(resp.StatusCode), c.problem(op, resp.StatusCode, kind, data)
}

// unavailable reports whether a status means that a call was not carried out, and may be sent again.
func unavailable(status int) bool {
	return status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout
}

// problem is the error of a response without a decision.
func (c *Client) problem(op string, status int, kind string, data []byte) error {
	if kind != "application/problem+json" && unavailable(status) {
		return fmt.Errorf("%w: %s: %s: a proxy before it answered %d", ErrUnavailable, op, c.base, status)
	}
	e := &Error{Op: op, Status: status}
	var p struct {
		Detail string `json:"detail"`
		Field  string `json:"field"`
		Fix    string `json:"fix"`
	}
	if kind == "application/problem+json" && json.Unmarshal(data, &p) == nil {
		e.Detail, e.Field, e.Fix = p.Detail, p.Field, p.Fix
		return e
	}
	e.Detail = "the response is not that of a limit service"
	e.Fix = "check that listen.http of the policy is " + c.base
	return e
}

// unreached is the error of a call without a response.
func (c *Client) unreached(op string, err error) error {
	var wrong *url.Error
	if errors.As(err, &wrong) {
		err = wrong.Err // without the address, which comes here anyway
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("weirclient: %s: %w", op, err) // the caller's own wish
	}
	fix := ""
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		fix = ": is weir serve running, with listen.http at this address?"
	}
	return fmt.Errorf("%w: %s: %s: %w%s", ErrUnavailable, op, c.base, err, fix)
}
