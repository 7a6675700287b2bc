// Package charges is the JSON of POST /v1/charge: the operations of a weir.Store over HTTP. The client
// (weirclient) and the server (server/httpapi) share it.
package charges

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirflow/weir"
)

// A Request is the body of a call.
type Request struct {
	Charges []Charge `json:"charges"`
}

// A Charge is one operation.
type Charge struct {
	Op        string          `json:"op,omitempty"` // default: take
	Name      string          `json:"name"`
	Key       string          `json:"key,omitempty"`
	KeyBase64 string          `json:"key_base64,omitempty"` // in place of key, for bytes that are no text
	Limit     json.RawMessage `json:"limit"`                // {"token_bucket": {"rate": "10/s", "burst": 20}}
	Plan      string          `json:"plan,omitempty"`
	Cost      *int64          `json:"cost,omitempty"` // default: 1; a settle needs one
	Group     int             `json:"group,omitempty"`
	Within    int64           `json:"within_ns,omitempty"`
	Keep      bool            `json:"keep,omitempty"`
	Estimate  bool            `json:"estimate,omitempty"`
	Usage     bool            `json:"usage,omitempty"` // of a peek
	Receipt   string          `json:"receipt,omitempty"`
	Once      string          `json:"once,omitempty"`
	OnceFor   int64           `json:"once_for_ns,omitempty"`
}

// A Response is the answer: a result for each charge, in order.
type Response struct {
	Results []Result `json:"results"`
}

// A Result is the outcome of a Charge.
type Result struct {
	Allowed     bool   `json:"allowed"`
	Capacity    int64  `json:"capacity"`
	Remaining   int64  `json:"remaining"`
	RetryAfter  *int64 `json:"retry_after_ns,omitempty"` // of a refusal: without it, no wait helps
	ResetAfter  int64  `json:"reset_after_ns"`
	Level       int64  `json:"level,omitempty"`
	By          string `json:"by,omitempty"`
	Source      string `json:"source"`
	Receipt     string `json:"receipt,omitempty"`
	Delay       int64  `json:"delay_ns,omitempty"`
	Taken       int64  `json:"taken,omitempty"`
	Used        int64  `json:"used,omitempty"`
	Error       string `json:"error,omitempty"`       // the charge was not carried out
	Unavailable bool   `json:"unavailable,omitempty"` // and for the store: it may have been, once
	Expired     bool   `json:"expired,omitempty"`     // and it was a settle that came too late
}

// Most is how many charges one call may have, and the longest texts.
const (
	Most        = 256
	MostName    = 128
	MostKey     = 4096
	MostLimit   = 4096
	MostReceipt = 4096
	MostOnce    = 64
	MostOnceFor = 2 * time.Hour
)

// ops are the operations, as JSON names them.
func ops() []string {
	return []string{weir.OpTake: "take", weir.OpPeek: "peek", weir.OpReserve: "reserve", weir.OpSettle: "settle", weir.OpTakeSome: "take_some", weir.OpCarry: "carry", weir.OpReset: "reset"}
}

// Encode writes a charge. limit is its limit: see EncodeLimit.
func Encode(c *weir.Charge, limit json.RawMessage) (Charge, error) {
	names := ops()
	if int(c.Op) >= len(names) {
		return Charge{}, fmt.Errorf("there is no operation %d", c.Op)
	}
	e := Charge{Op: names[c.Op], Name: c.Name, Limit: limit, Plan: c.Plan, Cost: &c.Cost, Group: c.Group, Within: int64(c.Within), Keep: c.Keep, Estimate: c.Estimate, Usage: c.Usage}
	if c.Op == weir.OpTake {
		e.Op = ""
	}
	if c.Op == weir.OpSettle {
		e.Receipt = base64.RawStdEncoding.EncodeToString([]byte(c.Receipt))
		if c.Once != "" && c.OnceFor > 0 {
			e.Once, e.OnceFor = c.Once, int64(min(c.OnceFor, MostOnceFor))
		}
	}
	if utf8.ValidString(c.Key) {
		e.Key = c.Key
	} else {
		e.KeyBase64 = base64.RawStdEncoding.EncodeToString([]byte(c.Key))
	}
	return e, nil
}

// A FieldError says which field of a charge is wrong.
type FieldError struct {
	Field, Problem, Fix string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem + " (" + e.Fix + ")" }

// Decode reads a charge. limit turns its limit into one. The error is a *FieldError.
func (e *Charge) Decode(limit func(json.RawMessage) (weir.Limit, error)) (c weir.Charge, err error) {
	op := 0
	if names := ops(); e.Op != "" {
		if op = slices.Index(names, e.Op); op < 0 {
			return c, &FieldError{"op", fmt.Sprintf("%.40q is not an operation", e.Op), "write take, peek, reserve, settle, take_some, carry or reset"}
		}
	}
	c = weir.Charge{Op: weir.Op(op), Name: e.Name, Key: e.Key, Plan: e.Plan, Cost: 1, Group: e.Group, Within: time.Duration(e.Within), Keep: e.Keep, Estimate: e.Estimate, Usage: e.Usage}
	switch {
	case e.Cost != nil:
		c.Cost = *e.Cost
	case c.Op == weir.OpSettle:
		return c, &FieldError{"cost", "a settle says what the work has cost", `write "cost": 3`}
	}
	if len(e.Name) == 0 || len(e.Name) > MostName || !isPlain(e.Name) {
		return c, &FieldError{"name", "it is not 1 to 128 letters, digits and signs of ASCII", `name the limit, as in "name": "per-user"`}
	}
	if e.KeyBase64 != "" {
		key, err := base64.RawStdEncoding.DecodeString(e.KeyBase64)
		if err != nil || e.Key != "" {
			return c, &FieldError{"key_base64", "it is not base64 without padding, or there is a key too", "send key, or key_base64"}
		}
		c.Key = string(key)
	}
	if len(c.Key) > MostKey || len(e.Plan) > MostName {
		return c, &FieldError{"key", "it is longer than 4096 bytes, or the plan longer than 128", "send a hash of it"}
	}
	if c.Group < 0 || c.Group > Most {
		return c, &FieldError{"group", fmt.Sprintf("%d is not a group", c.Group), "write 1 to 256 for charges that are made together, or take it out"}
	}
	receipt, err := base64.RawStdEncoding.DecodeString(e.Receipt)
	if err != nil || len(receipt) > MostReceipt || (c.Op == weir.OpSettle) != (len(receipt) > 0) {
		return c, &FieldError{"receipt", "it is not the receipt of an earlier result, or not that of a settle", "send the receipt of the charge with the operation settle"}
	}
	c.Receipt = weir.Receipt(receipt)
	if err := e.checkOnce(c.Op); err != nil {
		return c, err
	}
	c.Once, c.OnceFor = e.Once, time.Duration(e.OnceFor)
	if len(e.Limit) > MostLimit {
		return c, &FieldError{"limit", "it is longer than 4096 bytes", `write it like {"token_bucket": {"rate": "10/s", "burst": 20}}`}
	}
	c.Limit, err = limit(e.Limit)
	return c, err
}

// checkOnce checks the name of a settlement.
func (e *Charge) checkOnce(op weir.Op) error {
	switch {
	case e.Once == "" && e.OnceFor == 0:
		return nil
	case op != weir.OpSettle:
		return &FieldError{"once", "it names a settlement, and the operation is another one", "take it out; to repeat a call, send an Idempotency-Key"}
	case len(e.Once) == 0 || len(e.Once) > MostOnce || !isPlain(e.Once):
		return &FieldError{"once", "it is not 1 to 64 letters, digits and signs of ASCII", "send a random text"}
	case e.OnceFor <= 0 || e.OnceFor > int64(MostOnceFor):
		return &FieldError{"once_for_ns", fmt.Sprintf("%d is not how long a settlement is remembered", e.OnceFor), "write at most 7200000000000, which is 2 hours"}
	}
	return nil
}

// isPlain reports whether a text has only letters, digits and signs of ASCII.
func isPlain(text string) bool {
	return !slices.ContainsFunc([]byte(text), func(b byte) bool { return b <= ' ' || b > '~' })
}

// ResultOf is the result of a charge that was carried out, or of one that was not.
func ResultOf(c *weir.Charge, d weir.Decision, err error) Result {
	r := Result{
		Allowed: d.Allowed, Capacity: d.Limit, Remaining: d.Remaining, ResetAfter: int64(d.ResetAfter), Level: d.Level, By: d.By, Source: d.Source.String(),
		Receipt: base64.RawStdEncoding.EncodeToString([]byte(c.Receipt)), Delay: int64(c.Delay), Taken: c.Taken, Used: c.Used,
	}
	if c.Op == weir.OpSettle {
		r.Receipt = ""
	}
	if !d.Allowed && d.RetryAfter != weir.Never {
		wait := int64(d.RetryAfter)
		r.RetryAfter = &wait
	}
	if err != nil {
		r.Error, r.Unavailable, r.Expired = err.Error(), !errors.Is(err, weir.ErrCharge), errors.Is(err, weir.ErrExpired)
	}
	return r
}

// ErrUnavailable is the error of a charge that the store behind the server did not respond about.
var ErrUnavailable = errors.New("the store of the limit service is unavailable")

// Into writes a result to a charge and its decision.
func (r *Result) Into(c *weir.Charge, d *weir.Decision) {
	*d = weir.Decision{Allowed: r.Allowed, Limit: r.Capacity, Remaining: r.Remaining, ResetAfter: time.Duration(r.ResetAfter), Level: r.Level, By: r.By, Source: SourceOf(r.Source)}
	switch {
	case r.RetryAfter != nil:
		d.RetryAfter = time.Duration(*r.RetryAfter)
	case !r.Allowed:
		d.RetryAfter = weir.Never
	}
	c.Err, c.Used = nil, r.Used
	switch {
	case r.Error != "" && r.Unavailable:
		c.Err = fmt.Errorf("%w: %s", ErrUnavailable, r.Error)
	case r.Expired:
		c.Err = weir.ErrExpired
	case r.Error != "":
		c.Err = fmt.Errorf("%w: %s", weir.ErrCharge, strings.TrimPrefix(r.Error, weir.ErrCharge.Error()+": "))
	}
	if c.Err != nil {
		*d = weir.Decision{}
	}
	if c.Op == weir.OpSettle {
		return
	}
	c.Delay, c.Taken, c.Receipt = time.Duration(r.Delay), r.Taken, ""
	if receipt, err := base64.RawStdEncoding.DecodeString(r.Receipt); err == nil {
		c.Receipt = weir.Receipt(receipt)
	}
}

// SourceOf is the source with a name. One that only a newer server knows is the store's.
func SourceOf(name string) weir.Source {
	for s := weir.SourceLocal; s <= weir.SourceDeny; s++ {
		if s.String() == name {
			return s
		}
	}
	return weir.SourceStore
}
