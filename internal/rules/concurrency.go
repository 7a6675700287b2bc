package rules

import (
	"errors"
	"time"
)

// Concurrency is the parameters of the limit of that name. It has no Rule, as places are entered
// and left, and package weir holds them. This file has what it shares with the other limits: its
// fields and their meaning.
type Concurrency struct {
	Limit   int64
	Queue   int64
	MaxHold time.Duration
}

var concurrencyKind = Kind{
	Name:   "concurrency",
	GoName: "Concurrency",
	Doc:    "How many requests may be in flight at once, from their start to the end of their response. Each HTTP/2 stream is one request.",
	Page:   "Concurrency",
	Zero:   Concurrency{},
	Fields: []Field{
		{Name: "limit", Type: CountField, Required: true, Doc: "How many requests at once; at least 1."},
		{Name: "queue", Type: CountField, Default: "0", Doc: "How many requests may wait for a place."},
		{Name: "max_hold", Type: DurationField, Default: "10s",
			Doc: "In memory: after this long, the place of a request in flight is free for another one, like 10m. default: never. In a store: after this long, the places of a gateway that crashed are free; living gateways extend theirs."},
	},
	NoRule:     "places are entered and left, not taken: use NewConcurrency, or keyed.NewConcurrency for a limit of each key",
	NoShare:    "places that are held when an outage begins cannot be divided",
	NoLease:    "a place is left, and a lease has nothing that could be",
	NoRegions:  "what is held is not counted in time, so a part of it cannot be moved while it is held",
	NoStore:    "a weir.Store carries out charges, and a place is entered and left: a store that keeps places is a policy.Holder",
	NoModel:    "concurrency_model_test.go has one of its own, as its verbs are others",
	NoOverride: "places have no parameters for single keys",
}

var errEntered = errors.New("weir: Concurrency is entered and left, not taken: use NewConcurrency")

// Kind implements Params.
func (l Concurrency) Kind() *Kind { return &concurrencyKind }

// Compile implements Params: there is no rule.
func (l Concurrency) Compile(time.Duration) (Rule, error) { return nil, errEntered }

// MostPerRequest implements Params.
func (l Concurrency) MostPerRequest() (int64, string) { return l.Limit, "limit" }

// QuotaWindow implements Params.
func (l Concurrency) QuotaWindow() time.Duration { return 0 }

// MostWords implements Params.
func (l Concurrency) MostWords() int64 { return 8 }

// Resets implements Params.
func (l Concurrency) Resets() bool { return true }

// Places implements Entered.
func (l Concurrency) Places() Concurrency { return l }
