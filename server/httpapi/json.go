package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/guard"
)

// problem is an answer that something is wrong (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"` // where it is wrong, as in limits[1].key
	Fix    string `json:"fix,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

// complete sets the fields that follow from the status.
func (p *problem) complete() *problem {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	return p
}

// encode returns the status and the body of the answer.
func (p *problem) encode(h http.Header) (int, []byte) {
	p = p.complete()
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	return p.Status, encoded(p)
}

// encoded returns a value as JSON.
func encoded(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the types of this package have nothing that cannot be encoded
	return b.Bytes()
}

func statusText(status int) string { return strconv.Itoa(status) }

// decode reads the body of a request into a value: JSON whose strings are text, no unknown field, no field
// twice, nothing behind it.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		field := strings.ReplaceAll(wrong.Field, "ask.", "") // the embedded struct
		return &problem{Status: http.StatusBadRequest, Field: field, Detail: fmt.Sprintf("%s is a JSON %s, and not %s", cmp.Or(field, "the body"), wrong.Value, typeName(wrong.Type)), Fix: "the fields are in /openapi.json"}
	case errors.Is(err, io.EOF):
		return &problem{Status: http.StatusBadRequest, Detail: "the body is empty", Fix: `send {"limit": "NAME", "key": ["PART"]}`}
	case err != nil:
		return &problem{Status: http.StatusBadRequest, Detail: short(strings.TrimPrefix(err.Error(), "json: ")), Fix: "the fields are in /openapi.json"}
	}
	if len(bytes.TrimLeft(data[d.InputOffset():], " \t\r\n")) > 0 {
		return &problem{Status: http.StatusBadRequest, Detail: "there is text after the JSON object", Fix: "send one object"}
	}
	if err := notText(data); err != nil {
		return err
	}
	return twice(data)
}

// maxText is how much of a client's own text an error repeats, in bytes.
const maxText = 200

// short cuts a text that a client may have made long.
func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// typeName is a Go type as JSON calls it, with its article.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice:
		return "an array"
	case reflect.Int64:
		return "a whole number"
	case reflect.String:
		return "a string"
	}
	return "an object"
}

// body reads the body of a request, which must be JSON.
func body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !guard.IsTyped(r, "application/json") {
		return nil, &problem{Status: http.StatusUnsupportedMediaType, Detail: "the body is not said to be JSON", Fix: "send Content-Type: application/json"}
	}
	switch n := r.ContentLength; {
	case n > maxBody: // before the client sends it
		return nil, unread(&http.MaxBytesError{Limit: maxBody})
	case n >= 0:
		data := make([]byte, n)
		_, err := io.ReadFull(r.Body, data)
		return data, unread(err)
	}
	data := bytes.NewBuffer(make([]byte, 0, bytes.MinRead))
	_, err := data.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	return data.Bytes(), unread(err)
}

// unread is the answer to a body that was not read in full; nil for one that was.
func unread(err error) error {
	if err == nil {
		return nil
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body is larger than %d bytes", maxBody), Fix: "send fewer limits in one call"}
	}
	if errors.Is(err, face.ErrNoRoom) {
		return &problem{Status: http.StatusServiceUnavailable, Detail: err.Error()}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &problem{Status: http.StatusRequestTimeout, Detail: "the body did not come in time", Fix: "send the call again, on another connection"}
	}
	return &problem{Status: http.StatusBadRequest, Detail: "the body did not come in full"}
}

// decision is the answer to take, peek and reserve.
type decision struct {
	Allowed bool   `json:"allowed"`
	Limit   string `json:"limit,omitempty"` // the limit that refused
	// without it, no wait helps
	RetryAfter  *int64  `json:"retry_after_ms,omitempty"`
	Delay       int64   `json:"delay_ms,omitempty"`
	Limits      []state `json:"limits"`
	Reservation string  `json:"reservation,omitempty"`
	ExpiresAt   string  `json:"expires_at,omitempty"`
	Problem     string  `json:"store_problem,omitempty"`
}

// state is what an answer says of one limit.
type state struct {
	Limit      string `json:"limit"`
	Allowed    bool   `json:"allowed"`
	Capacity   int64  `json:"capacity"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms,omitempty"`
	ResetAfter int64  `json:"reset_after_ms"`
	Window     int64  `json:"window_ms"`
	Source     string `json:"source"`
	Exempt     bool   `json:"exempt,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"`
	// another limit had refused before: the fields about what is left say nothing
	Skipped bool `json:"not_evaluated,omitempty"`
}

// ms returns milliseconds, rounded up, so that no caller retries too early.
func ms(d time.Duration) int64 {
	n := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		n++
	}
	return n
}

// retryAfter returns the wait of a refusal; nil if it was none, or no wait helps.
func retryAfter(d weir.Decision) *int64 {
	if d.Allowed || d.RetryAfter == weir.Never {
		return nil
	}
	n := max(ms(d.RetryAfter), 1)
	return &n
}

func decisionOf(a *policy.Answer) *decision {
	d := &decision{Allowed: a.Allowed, Limit: a.Limit, Delay: ms(a.Delay), Limits: make([]state, len(a.Each))}
	if !a.Allowed {
		d.RetryAfter = retryAfter(a.Decision)
	}
	switch {
	case errors.Is(a.Err, weir.ErrCharge): // of one key, and so no outage
		d.Problem = policy.Undecidable + ": it is refused"
	case a.Err != nil:
		d.Problem = "a store did not decide: on_failure of the limit did"
	}
	for i, x := range a.Each {
		d.Limits[i] = state{x.Limit, x.Decision.Allowed, x.Decision.Limit, x.Decision.Remaining, retryAfter(x.Decision), ms(x.Decision.ResetAfter),
			ms(x.Window), x.Decision.Source.String(), x.Exempt, x.Shadow, !x.Evaluated && !x.Exempt}
	}
	return d
}
