package admin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
)

// live is the counters of the running server, for a dashboard that computes rates from two of them.
type live struct {
	Time     string         `json:"time"` // of this reading
	Now      int64          `json:"now_ms"`
	Since    string         `json:"since"` // of the policy
	From     string         `json:"from"`  // file or api
	File     string         `json:"file"`
	ETag     string         `json:"etag"`
	Token    bool           `json:"token"` // the server has a token, so that a policy may be sent
	NoRoute  uint64         `json:"no_route"`
	Failed   uint64         `json:"reloads_failed"`
	Latency  *latencyLive   `json:"decision_latency,omitempty"`
	Limits   []limitLive    `json:"limits"`
	Stores   []storeLive    `json:"stores"`
	Adaptive []adaptiveLive `json:"adaptive"`
}

type limitLive struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Rule      string `json:"rule"`
	Key       string `json:"key,omitempty"`
	Store     string `json:"store,omitempty"`
	RollOut   string `json:"roll_out,omitempty"`
	Shadow    bool   `json:"shadow,omitempty"`
	Rest      bool   `json:"rest,omitempty"` // the shadow for keys outside of the roll_out
	Allowed   uint64 `json:"allowed"`
	Limited   uint64 `json:"limited"`
	Delayed   uint64 `json:"delayed"`
	Banned    uint64 `json:"banned"`
	Granted   uint64 `json:"granted"`
	Exempt    uint64 `json:"exempt"`
	Errors    uint64 `json:"errors"` // neither the store nor its fallback could decide
	Fallback  uint64 `json:"fallback"`
	Waiting   int    `json:"waiting"`
	Held      int64  `json:"held"`
	Keys      int    `json:"keys"`
	Evicted   uint64 `json:"evicted"` // while they were still limited
}

// latencyLive is how many durations were at most as long as each bound, and the last of the counts how many there were in all.
type latencyLive struct {
	Bounds []float64 `json:"seconds"`
	Counts []uint64  `json:"counts"`
}

type storeLive struct {
	storeJSON
	Breaker  string `json:"breaker"` // closed, or open for some or all shards
	Answered uint64 `json:"answered"`
	Late     uint64 `json:"late"`
	Failed   uint64 `json:"failed"`
	Skipped  uint64 `json:"skipped"`
	Opened   uint64 `json:"opened"`

	Latency *latencyLive `json:"latency,omitempty"`
}

type adaptiveLive struct {
	Limit    string `json:"limit"`
	Target   string `json:"target,omitempty"` // of an upstream
	Now      int64  `json:"now"`
	InFlight int64  `json:"in_flight"`
	Waiting  int64  `json:"waiting"`
	OK       uint64 `json:"ok"`
	Dropped  uint64 `json:"dropped"`
	Refused  uint64 `json:"refused"`

	// Of a route: what is not known is missing.
	Least    float64           `json:"least_latency_ms,omitempty"`
	Overload string            `json:"overload,omitempty"`    // why a limit that follows signals is in force
	Reasons  map[string]uint64 `json:"refused_for,omitempty"` // requests by the reason
}

// live answers what the server counts at this moment.
func (p *api) live(w http.ResponseWriter, _ *http.Request) error {
	status, engine, now := p.policy.Status(), p.policy.Engine(), time.Now()
	_, failed := p.policy.Reloads()
	out := live{
		Time: now.UTC().Format(time.RFC3339Nano), Now: now.UnixMilli(), Since: status.Since.UTC().Format(time.RFC3339), From: "file", File: status.File.Path,
		ETag: p.tags.of(status.File.Data), Token: p.hasToken(), NoRoute: engine.NoRoute(), Failed: failed,
		Limits: limitsLive(engine), Stores: []storeLive{}, Adaptive: []adaptiveLive{},
	}
	if status.FromAPI {
		out.From = "api"
	}
	took := p.policy.Decisions().Durations
	out.Latency = new(latencyLive(took.Decisions()))
	for _, s := range p.policy.StoreStats() {
		one := storeLiveOf(s)
		if l, ok := took.StoreCalls(s.Name); ok {
			one.Latency = new(latencyLive(l))
		}
		out.Stores = append(out.Stores, one)
	}
	for _, a := range engine.AdaptiveCounts() {
		one := adaptiveLive{
			Limit: a.Name, Now: a.Limit, InFlight: a.InFlight, Waiting: int64(a.Waiting), OK: a.Outcomes.OK, Dropped: a.Outcomes.Dropped, Refused: a.Outcomes.Refused,
			Least: a.LeastLatency.Seconds() * 1000, Overload: a.Overload, Reasons: map[string]uint64{},
		}
		for _, r := range a.Reasons.All() {
			if r.Refused > 0 {
				one.Reasons[r.Name] = r.Refused
			}
		}
		out.Adaptive = append(out.Adaptive, one)
	}
	targets, err := p.targetsLive(engine.Policy().Upstreams)
	if err != nil {
		return err
	}
	out.Adaptive = append(out.Adaptive, targets...)
	answer(w, http.StatusOK, "application/json", out)
	return nil
}

// targetsLive is the adaptive limits of upstreams, as the metrics of the gateway have them.
func (p *api) targetsLive(of []policy.Upstream) ([]adaptiveLive, error) {
	if !slices.ContainsFunc(of, func(u policy.Upstream) bool { return u.Adaptive.On }) {
		return nil, nil
	}
	families, err := p.registry.Gather()
	if err != nil {
		return nil, err
	}
	var all []adaptiveLive
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "weir_upstream_adaptive_") {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			name, target := policy.AdaptiveName(labels["upstream"]), labels["target"]
			i := slices.IndexFunc(all, func(a adaptiveLive) bool { return a.Limit == name && a.Target == target })
			if i < 0 {
				i, all = len(all), append(all, adaptiveLive{Limit: name, Target: target})
			}
			a := &all[i]
			switch gauge, counter := int64(m.GetGauge().GetValue()), uint64(m.GetCounter().GetValue()); f.GetName() + labels["outcome"] {
			case "weir_upstream_adaptive_limit":
				a.Now = gauge
			case "weir_upstream_adaptive_in_flight":
				a.InFlight = gauge
			case "weir_upstream_adaptive_queued":
				a.Waiting = gauge
			case "weir_upstream_adaptive_requests_totalok":
				a.OK = counter
			case "weir_upstream_adaptive_requests_totaldropped":
				a.Dropped = counter
			case "weir_upstream_adaptive_requests_totalrefused":
				a.Refused = counter
			}
		}
	}
	return all, nil
}

func limitsLive(engine *policy.Engine) []limitLive {
	of, defs := engine.Policy(), map[string]*policy.Limit{}
	for i := range of.Limits {
		defs[of.Limits[i].Name] = &of.Limits[i]
	}
	all := []limitLive{}
	for _, c := range engine.Counts() {
		one := limitLive{
			Name: c.Limit, Shadow: c.Shadow, Rest: c.Rest, Allowed: c.Allowed, Limited: c.Limited, Delayed: c.Delayed, Banned: c.Banned, Granted: c.Granted,
			Exempt: c.Exempt, Errors: c.Failed, Waiting: c.Waiting, Held: c.Held, Keys: c.Keys.Keys, Evicted: c.Keys.EvictedFull,
		}
		if c.Stored {
			one.Fallback = c.Sources[weir.SourceShare] + c.Sources[weir.SourceAllow] + c.Sources[weir.SourceDeny]
		}
		if d := defs[c.Limit]; d != nil {
			one.Algorithm, one.Rule, one.Store, one.RollOut, one.Key = weir.Algorithm(d.Limit), policy.RuleText(d.Limit), d.Store, d.RollOut, keyText(d.Key)
		}
		all = append(all, one)
	}
	return all
}

// keyText is the parts of a limit's key as the policy has them.
func keyText(parts []string) string {
	text := ""
	for i, p := range parts {
		if i > 0 {
			text += ", "
		}
		text += p
	}
	return text
}

func storeLiveOf(s active.Store) storeLive {
	one := storeLive{storeJSON: storeOf(s), Breaker: "closed", Answered: s.Answered, Late: s.Late, Failed: s.Failed, Skipped: s.Skipped, Opened: s.Opened + s.Reopened}
	switch down := s.Unavailable(); {
	case down == 0:
	case down < s.Shards:
		one.Breaker = "partly open"
	default:
		one.Breaker = "open"
	}
	return one
}
