package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// MarshalJSON writes
// {"requests":N,"unparsed":N,"limits":{"NAME":{"allowed":N,"limited":N,"delayed":N}}, and
// the rest of the report}, the limits in the order of the policy. A shadow limit has "shadow":true, a limit whose costs are known only afterwards "cost":{"estimated":N,"actual":N,"unknown":N}, and a limit with a roll_out
// its counts as a shadow: "rest":{"allowed":N,"limited":N,"delayed":N,"clients_limited":N}.
func (r *Report) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"requests":%d,"unparsed":%d,"limits":{`, r.Requests, r.Unparsed)
	for i, l := range r.Limits {
		if l.Rest { // it comes right after its limit
			b.Truncate(b.Len() - 1)
			fmt.Fprintf(&b, `,"rest":{"allowed":%d,"limited":%d,"delayed":%d,"clients_limited":%d}}`, l.Allowed, l.Limited, l.Delayed, l.ClientsLimited)
			continue
		}
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(l.Limit)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `%s:{"allowed":%d,"limited":%d,"delayed":%d`, name, l.Allowed, l.Limited, l.Delayed)
		if l.Shadow {
			b.WriteString(`,"shadow":true`)
		}
		if l.Settles {
			fmt.Fprintf(&b, `,"cost":{"estimated":%d,"actual":%d,"unknown":%d}`, l.Estimated, l.Actual, l.Unknown)
		}
		b.WriteByte('}')
	}
	rest, err := json.Marshal(r.rest())
	if err != nil {
		return nil, err
	}
	b.WriteString("},")
	b.Write(rest[1:])
	return b.Bytes(), nil
}

type (
	jsonQuantiles struct {
		P50  int64 `json:"p50"`
		P90  int64 `json:"p90"`
		P99  int64 `json:"p99"`
		P999 int64 `json:"p99.9"`
		Max  int64 `json:"max"`
	}
	jsonRoute struct {
		Match          string `json:"match"`
		Requests       int64  `json:"requests"`
		Allowed        int64  `json:"allowed"`
		Limited        int64  `json:"limited"`
		Delayed        int64  `json:"delayed"`
		ClientsLimited int64  `json:"clients_limited"`
	}
	jsonSpan struct {
		Start    time.Time `json:"start"`
		Requests int64     `json:"requests"`
		Allowed  int64     `json:"allowed"`
		Limited  int64     `json:"limited"`
		Delayed  int64     `json:"delayed"`
	}
	jsonKey struct {
		Limit   string `json:"limit"`
		Key     string `json:"key"`
		Limited int64  `json:"limited"`
	}
	jsonAdaptive struct {
		Limit   string `json:"limit"`
		Target  string `json:"target,omitempty"`
		OK      int64  `json:"ok"`
		Ignored int64  `json:"ignored"`
		Dropped int64  `json:"dropped"`
		Refused int64  `json:"refused"`
		Lowest  int64  `json:"lowest"`
		Highest int64  `json:"highest"`
		Last    int64  `json:"last"`
	}
	jsonLog struct {
		Log    string `json:"log"`
		Format string `json:"format"`
	}
	jsonClients struct {
		Seen    int64                    `json:"seen"`
		Limited int64                    `json:"limited"`
		Delayed int64                    `json:"delayed"`
		By      map[string]int64         `json:"limited_by"`
		Sampled bool                     `json:"sampled,omitempty"`
		Close   int64                    `json:"close"`
		Used    jsonQuantiles            `json:"used_percent"`
		Peaks   map[string]jsonQuantiles `json:"most_requests_in_one"`
	}
	jsonReport struct {
		First     *time.Time  `json:"first,omitempty"`
		Last      *time.Time  `json:"last,omitempty"`
		Logs      []jsonLog   `json:"logs"`
		Allowed   int64       `json:"allowed"`
		Limited   int64       `json:"limited"`
		Delayed   int64       `json:"delayed"`
		NoRoute   int64       `json:"no_route"`
		Invalid   int64       `json:"invalid"`
		Clients   jsonClients `json:"clients"`
		Routes    []jsonRoute `json:"routes"`
		FirstHour *jsonSpan   `json:"first_limited_hour,omitempty"`
		WorstHour *jsonSpan   `json:"worst_hour,omitempty"`
		Most      []jsonKey   `json:"most_limited"`
		MostError int64       `json:"most_limited_error,omitempty"`

		Adaptive   []jsonAdaptive `json:"adaptive,omitempty"`
		NoDuration int64          `json:"without_duration,omitempty"`
	}
)

// rest returns what follows the limits.
func (r *Report) rest() jsonReport {
	c := &r.Clients
	j := jsonReport{
		Logs: []jsonLog{}, Routes: []jsonRoute{}, Most: []jsonKey{},
		Allowed: r.Allowed, Limited: r.Limited, Delayed: r.Delayed, NoRoute: r.NoRoute, Invalid: r.Invalid, MostError: r.MostError, NoDuration: r.NoDuration,
		Clients: jsonClients{Seen: c.Seen, Limited: c.Limited, Delayed: c.Delayed, Sampled: c.Sampled, Close: c.Close, Used: quantiles(c.Used), By: make(map[string]int64), Peaks: make(map[string]jsonQuantiles)},
	}
	if r.Requests > 0 {
		first, last := time.Unix(0, r.First).UTC(), time.Unix(0, r.Last).UTC()
		j.First, j.Last = &first, &last
	}
	for _, f := range r.Formats {
		j.Logs = append(j.Logs, jsonLog{f.Input, f.Format})
	}
	for i, q := range c.Peaks {
		j.Clients.Peaks[peakNames[i]] = quantiles(q)
	}
	for _, l := range r.Limits {
		if !l.Rest {
			j.Clients.By[l.Limit] = l.ClientsLimited
		}
	}
	for _, route := range r.Routes {
		j.Routes = append(j.Routes, jsonRoute(route))
	}
	if r.Limited > 0 {
		first, worst := jsonSpan(r.FirstHour), jsonSpan(r.WorstHour)
		j.FirstHour, j.WorstHour = &first, &worst
	}
	for _, m := range r.Most {
		j.Most = append(j.Most, jsonKey{m.Limit, m.Key, m.Count})
	}
	for _, c := range r.Adaptive {
		j.Adaptive = append(j.Adaptive, jsonAdaptive(c))
	}
	return j
}

func quantiles(q Quantiles) jsonQuantiles {
	return jsonQuantiles{q.Half, q.P90, q.P99, q.P999, q.Max}
}
