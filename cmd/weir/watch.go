package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/internal/asciijson"
	"github.com/weirflow/weir/internal/duration"
)

// decided is a decision in the stream of a server.
type decided struct {
	At       string   `json:"at"`
	Decision string   `json:"decision"`
	Limit    string   `json:"limit"`
	Key      []string `json:"key"`
	KeyHash  string   `json:"key_hash"`
	Route    string   `json:"route"`
	Cost     int64    `json:"cost"`
	Capacity int64    `json:"capacity"`
	Left     int64    `json:"remaining"`
	Retry    *int64   `json:"retry_after_ms"`
	Delay    int64    `json:"delay_ms"`
	Source   string   `json:"source"`
	Shadow   bool     `json:"shadow"`
	Banned   bool     `json:"banned"`
}

// watching is weir watch.
type watching struct {
	servers
	limits, decisions, routes []string
	key, shadow               string
	perSecond, most           int
	keys, asJSON              bool

	mu    sync.Mutex // held for a line
	count int
}

func watchCommand() *cobra.Command {
	var w watching
	c := &cobra.Command{
		Use:   "watch",
		Short: "Show decisions of a running server as they are made",
		Long: `Watch shows decisions as a server makes them, one per line, until it is interrupted or --count is reached: when, what was
decided, the limit, the key, the route, what is left, and when a refused request may come again.

Keys are shown as hashes unless --keys is set: equal keys of a limit have equal hashes until the server ends. Of more
decisions than --per-second, some are left out, and a line says how many; a flood of admitted requests hides no refusals.`,
		Example: "  weir watch --decision deny --keys\n  weir watch --limit per-user --key ann --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return w.run(cmd) },
	}
	f := c.Flags()
	f.StringSliceVar(&w.limits, "limit", nil, "only decisions of this limit; repeat it for several")
	f.StringSliceVar(&w.decisions, "decision", nil, "only allow, delay or deny; repeat it for several")
	f.StringArrayVar(&w.routes, "route", nil, "only requests to the route with this match; repeat it for several")
	f.StringVar(&w.key, "key", "", "only this key: its parts, separated by commas, or a JSON array of them")
	f.StringVar(&w.shadow, "shadow", "", "no: without shadow limits; only: only those")
	f.IntVar(&w.perSecond, "per-second", 100, "at most so many refusals each second, and as many other decisions; at most 10000")
	f.IntVar(&w.most, "count", 0, "end after so many decisions; default: when it is interrupted")
	f.BoolVar(&w.keys, "keys", false, "show keys, which may be addresses or names of clients")
	f.BoolVar(&w.asJSON, "json", false, "print each decision as a line of JSON, and what is left out as {\"lost\": {...}}")
	w.flags(c)
	return c
}

// query returns the parameters of the stream.
func (w *watching) query() (string, error) {
	q := url.Values{"limit": w.limits, "decision": w.decisions, "route": w.routes, "per_second": {strconv.Itoa(w.perSecond)}}
	if w.key != "" {
		parts, err := keyParts(w.key)
		if err != nil {
			return "", err
		}
		q["key"] = parts
	}
	if w.shadow != "" {
		q.Set("shadow", w.shadow)
	}
	if w.keys {
		q.Set("keys", "1")
	}
	return q.Encode(), nil
}

// run watches all servers until one of them ends its stream, --count is reached, or the user interrupts it.
func (w *watching) run(cmd *cobra.Command) error {
	query, err := w.query()
	if err != nil {
		return err
	}
	if w.most < 0 {
		return &usageError{errors.New("--count is a number of decisions: write at least 1")}
	}
	if err := w.open(); err != nil {
		return err
	}
	defer w.client.CloseIdleConnections()
	w.client.Timeout = 0 // a stream has no end
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	ended := make(chan error, len(w.addresses))
	for _, address := range w.addresses {
		go func() {
			err := w.stream(ctx, address, query, cmd.OutOrStdout())
			if err != nil && ctx.Err() == nil {
				err = fmt.Errorf("%s: %w", address, err)
			}
			ended <- err
			cancel()
		}()
	}
	for range w.addresses {
		if e := <-ended; err == nil && !errors.Is(e, context.Canceled) {
			err = e
		}
	}
	return err
}

// errStreamEnded is the error of a stream that the server ended.
var errStreamEnded = errors.New("the server has ended the stream, as it does when it is stopped or replaced")

// errEnough ends a stream at --count.
var errEnough = errors.New("enough")

// stream prints the decisions of one server.
func (w *watching) stream(ctx context.Context, address, query string, to io.Writer) error {
	resp, err := w.get(ctx, address+"/v1/decisions?"+query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	name := ""
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return cmp.Or(ctx.Err(), errStreamEnded)
		}
		line = strings.TrimSuffix(line, "\n")
		if text, ok := strings.CutPrefix(line, "event: "); ok {
			name = text
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			if err := w.print(to, address, name, text); err == errEnough {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

// get begins a stream. An error response is an error.
func (w *watching) get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", address, nil)
	if err != nil {
		return nil, err
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := w.client.Do(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	return nil, w.failure(req, resp, err)
}

// print prints an event.
func (w *watching) print(to io.Writer, address, name, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.most > 0 && w.count >= w.most {
		return errEnough
	}
	from := ""
	if len(w.addresses) > 1 {
		from = strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://") + "  "
	}
	switch name {
	case "lost":
		var lost struct{ Refused, Others uint64 }
		if err := json.Unmarshal([]byte(text), &lost); err != nil {
			return err
		}
		if w.asJSON {
			fmt.Fprintf(to, "{\"lost\":%s}\n", asciijson.Escape([]byte(text)))
		} else {
			fmt.Fprintf(to, "%s(left out: %d refusals, %d others)\n", from, lost.Refused, lost.Others)
		}
		return nil
	case "decision":
	default:
		return nil // of a later version
	}
	if w.count++; w.asJSON {
		fmt.Fprintf(to, "%s\n", asciijson.Escape([]byte(text)))
	} else {
		var d decided
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			return err
		}
		fmt.Fprintf(to, "%s%s\n", from, d.line())
	}
	if w.most > 0 && w.count >= w.most {
		return errEnough
	}
	return nil
}

// line is a decision for people.
func (d *decided) line() string {
	at := d.At
	if t, err := time.Parse(time.RFC3339Nano, d.At); err == nil {
		at = t.Local().Format("15:04:05.000")
	}
	key := shownKey(d.Key)
	if d.Key == nil && d.KeyHash != "" {
		key = "#" + shown(d.KeyHash)
	}
	what := shown(d.Decision)
	if d.Shadow {
		what = "(" + what + ")" // nothing happened to the request
	}
	text := fmt.Sprintf("%s  %-7s %-16s %-20s %s", at, what, cmp.Or(shown(d.Limit), "-"), cmp.Or(key, "-"), shown(d.Route))
	if d.Capacity > 0 {
		text += fmt.Sprintf("  %d of %d left", d.Left, d.Capacity)
	}
	if d.Cost != 1 && (d.Cost != 0 || d.Decision != "deny") { // bans and adaptive limits have no cost
		text += fmt.Sprintf("  cost %d", d.Cost)
	}
	switch {
	case d.Banned:
		text += "  banned"
	case d.Retry != nil && *d.Retry > 0:
		text += "  retry after " + duration.Format(time.Duration(*d.Retry)*time.Millisecond)
	case d.Decision == "deny" && d.Retry == nil:
		text += "  no wait helps"
	case d.Delay > 0:
		text += "  delayed by " + duration.Format(time.Duration(d.Delay)*time.Millisecond)
	}
	if d.Source != "" {
		text += "  by " + shown(d.Source)
	}
	return strings.TrimRight(text, " ")
}
