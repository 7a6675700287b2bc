package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/charges"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/memory"
)

// clientPrefix begins the names of limits that clients bring. No limit of a policy has capitals, so that
// no chosen name reaches one.
const clientPrefix = "CLIENT."

// mostParsed is how many limits are kept in parsed form, by their texts.
const mostParsed = 1024

// clientLimits are the limits that clients bring with their calls.
type clientLimits struct {
	memory *memory.Store // nil where the policy did not allow such limits, or keeps them in a store

	mu     sync.RWMutex
	parsed map[string]weir.Limit
}

func newClientLimits(o policy.ClientLimits, clock func() int64) *clientLimits {
	c := &clientLimits{parsed: map[string]weir.Limit{}}
	if o.On {
		c.memory = memory.New(memory.Options{MaxKeys: o.MaxKeys, Refuse: o.WhenFull == "refuse", Clock: clock})
	}
	return c
}

// limit returns the limit that a text describes.
func (c *clientLimits) limit(text json.RawMessage) (weir.Limit, error) {
	c.mu.RLock()
	l, ok := c.parsed[string(text)]
	c.mu.RUnlock()
	if ok {
		return l, nil
	}
	l, err := charges.DecodeLimit(text, policy.ParseLimit)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parsed) >= mostParsed {
		c.parsed = map[string]weir.Limit{}
	}
	c.parsed[string(text)] = l
	return l, nil
}

// store returns where the active policy keeps the limits of clients, and the longest call of it.
func (f *Face) store() (weir.Store, time.Duration, error) {
	now := f.policy.Now()
	o, _ := now.File.Policy.Listen.Endpoint(name)
	on := o.HTTP.ClientLimits
	if !on.On {
		return nil, 0, &problem{Status: http.StatusForbidden, Detail: "the policy does not take limits from clients", Fix: "add client_limits: {} to listen.http in the policy; or name a limit of the policy in /v1/take"}
	}
	if on.Store == "" {
		if f.clients.memory == nil {
			return nil, 0, &problem{Status: http.StatusServiceUnavailable, Detail: "client_limits were added to the policy after the start", Fix: "restart the server"}
		}
		return f.clients.memory, 0, nil
	}
	store := now.Direct[on.Store]
	if store == nil {
		return nil, 0, &problem{Status: http.StatusServiceUnavailable, Detail: "the store of client_limits is not open"}
	}
	for _, s := range now.File.Policy.Stores {
		if s.Name == on.Store && s.Deadline > 0 {
			return store, s.Deadline, nil
		}
	}
	return store, failover.DefaultDeadline, nil
}

// charged is the answer to charge.
type charged struct {
	charges.Response
	unavailable bool
}

// charge carries out operations on limits that the caller brings: those of a weir.Store.
func (f *Face) charge(c *call) (any, error) {
	var of charges.Request
	if err := decode(c.data, &of); err != nil {
		return nil, err
	}
	if n := len(of.Charges); n == 0 || n > charges.Most {
		return nil, &problem{Status: http.StatusBadRequest, Field: "charges", Detail: fmt.Sprintf("there are %d charges", n), Fix: fmt.Sprintf("send 1 to %d", charges.Most)}
	}
	store, within, err := f.store()
	if err != nil {
		return nil, err
	}
	batch := make([]weir.Charge, len(of.Charges))
	for i := range batch {
		if batch[i], err = of.Charges[i].Decode(f.clients.limit); err != nil {
			return nil, wrongCharge(i, err)
		}
		batch[i].Name = clientPrefix + batch[i].Name
	}
	ctx := c.r.Context()
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	out := make([]weir.Decision, len(batch))
	return answerCharges(batch, out, store.Do(ctx, batch, out)), nil
}

// wrongCharge is the problem of a charge that cannot be read.
func wrongCharge(i int, err error) error {
	var wrong *charges.FieldError
	if !errors.As(err, &wrong) {
		return err
	}
	return &problem{Status: http.StatusUnprocessableEntity, Field: fmt.Sprintf("charges[%d].%s", i, wrong.Field), Detail: short(wrong.Problem), Fix: wrong.Fix}
}

// answerCharges is the answer to charges. failed is the store's error, which is that of all charges
// that have none of their own and no decision.
func answerCharges(batch []weir.Charge, out []weir.Decision, failed error) *charged {
	a := &charged{Response: charges.Response{Results: make([]charges.Result, len(batch))}}
	for i := range batch {
		err := batch[i].Err
		if err == nil && failed != nil && out[i] == (weir.Decision{}) {
			err = failed
		}
		out[i].By = strings.TrimPrefix(out[i].By, clientPrefix)
		r := charges.ResultOf(&batch[i], out[i], err)
		if r.Error = short(strings.ReplaceAll(r.Error, clientPrefix, "")); r.Unavailable {
			a.unavailable = true
		}
		a.Results[i] = r
	}
	return a
}

// status is 503 if the store did not respond about a charge.
func (a *charged) status() int {
	if a.unavailable {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// clientMetrics are those of limits that clients bring, in memory.
func clientMetrics(m *memory.Store) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_http_client_keys", Help: "Keys in memory of limits that clients of listen.http bring."},
			func() float64 { return float64(m.Len()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_http_client_keys_evicted_total", Help: "Keys of such limits that were evicted while they were in use, for lack of room."},
			func() float64 { return float64(m.Evicted()) }),
	}
}
