package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/weirflow/weir/policy"
)

// asker sends requests, one after another.
type asker struct {
	Options
	client *http.Client
	sent   int
	paths  *regexp.Regexp // of the route that is asked about, in all forms
	failed int            // requests without a response, in a row
}

const (
	maxBody    = 256 << 10
	maxFailed  = 5 // requests in a row without a response, after which the upstream counts as down
	defaultMax = 2000
)

func newAsker(o Options) *asker {
	o.Requests, o.Timeout = cmp.Or(o.Requests, defaultMax), cmp.Or(o.Timeout, DefaultTimeout)
	if o.Transport == nil {
		o.Transport = &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}
	}
	return &asker{Options: o, client: &http.Client{
		Transport:     o.Transport,
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (a *asker) close() { a.client.CloseIdleConnections() }

// answer is what matters of a response. The zero answer is none: the upstream closed the connection.
type answer struct {
	status int
	head   string         // status, type, Allow and Location
	body   [levels]string // without the paths, and with less and less of what changes each time
}

// levels is how many forms a body has.
const levels = 3

var (
	digits = regexp.MustCompile(`[0-9]+`)
	tokens = regexp.MustCompile(`[0-9A-Za-z_+/=-]{16,}`)
)

// ask sends a request without a body, with the path exactly as it is. An upstream that responds to
// none of several requests in a row is an error.
func (a *asker) ask(ctx context.Context, method, host, path string) (answer, error) {
	if a.sent >= a.Requests {
		return answer{}, fmt.Errorf("%w: %d", ErrTooMany, a.sent)
	}
	at, err := url.ParseRequestURI(path)
	if err != nil {
		return answer{}, fmt.Errorf("%q is not a path: %w", path, err)
	}
	at.Scheme, at.Host, at.User = a.URL.Scheme, a.URL.Host, a.URL.User
	req, err := http.NewRequestWithContext(ctx, method, a.URL.String(), nil)
	if err != nil {
		return answer{}, err
	}
	req.URL, req.Host = at, host
	req.Close = method == http.MethodHead // some servers send a body, which the next response would begin with
	req.Header.Set("User-Agent", "weir-check-probe")
	for name, values := range a.Header {
		req.Header[name] = values
	}
	a.sent++
	resp, err := a.client.Do(req)
	if err != nil {
		if a.failed++; a.failed >= maxFailed || a.sent == 1 || ctx.Err() != nil {
			return answer{}, fmt.Errorf("the upstream does not respond: %w", cause(err))
		}
		return answer{}, nil
	}
	defer resp.Body.Close()
	a.failed = 0
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return answer{}, nil
	}
	return a.answerOf(resp, string(text), method), nil
}

// cause is an error of a client without its URL, which may hold a password.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// answerOf takes from a response what says which handler made it. The paths that are asked for are
// taken out: many pages and redirects repeat them, or name the one that they stand for.
func (a *asker) answerOf(resp *http.Response, text, method string) (got answer) {
	got.status = resp.StatusCode
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	got.head = fmt.Sprintf("%d %s allow=%s location=%s", got.status, kind, resp.Header.Get("Allow"), a.withoutPaths(resp.Header.Get("Location")))
	if method == http.MethodHead { // the length of a page that repeats its path says nothing
		text = ""
	}
	text = a.withoutPaths(text)
	got.body = [levels]string{text, digits.ReplaceAllString(text, "0"), digits.ReplaceAllString(tokens.ReplaceAllString(text, "x"), "0")}
	return got
}

func (a *asker) withoutPaths(text string) string {
	if a.paths == nil {
		return text
	}
	return a.paths.ReplaceAllLiteralString(text, "{path}")
}

// formsOf matches the ways in which a response may repeat some paths and their variants: as they are
// sent, decoded, or encoded for a query, in any case. It is nil for the root alone.
func formsOf(paths ...string) *regexp.Regexp {
	var forms []string
	add := func(path string) {
		decoded, err := url.PathUnescape(path)
		if err != nil {
			decoded = path
		}
		for _, form := range []string{path, decoded, url.QueryEscape(path), url.QueryEscape(decoded)} {
			if strings.Trim(path, "/") != "" {
				forms = append(forms, regexp.QuoteMeta(strings.ToValidUTF8(form, "")))
			}
		}
	}
	for _, path := range paths {
		add(path)
		for _, v := range policy.Variants(path) {
			add(v.Path)
		}
	}
	if len(forms) == 0 {
		return nil
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // the longest that fits
	return regexp.MustCompile("(?i)" + strings.Join(slices.Compact(forms), "|"))
}
