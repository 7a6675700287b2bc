// Package envoy reads the configuration of envoyproxy/ratelimit, and finds the rule for a descriptor
// as that server does.
package envoy

import (
	"strings"
	"time"

	"github.com/weirflow/weir/server/policyfile"
)

// A Config is the rules of all domains. It is never changed.
type Config struct {
	domains map[string]*level
	rules   []*Rule // in the order of the files
}

// level is the descriptors of one depth.
type level struct {
	exact     map[entry]*descriptor
	bare      map[string]*descriptor // without a value
	wildcards []*descriptor          // in the order of the file
}

type entry struct{ key, value string }

// descriptor is a descriptor of a file.
type descriptor struct {
	entry
	rule          *Rule    // nil for a descriptor that only has others below it
	pattern       []string // the parts of a value between its stars; nil without one
	shared        bool     // all values that match the pattern have one counter
	valueToMetric bool
	below         level
}

// A Rule is what a file says about a descriptor.
type Rule struct {
	// where it is: the domain, and the keys with their values, like "shop.path_/cart.user"
	Path   string
	Domain string

	Name      string // for Replaces
	Replaces  []string
	Requests  uint32
	Unit      Unit // 0 if Unlimited, or with Limit
	Unlimited bool
	Limit     string            // a limit of the policy, in place of Requests and Unit; empty for none
	Inline    *policyfile.Value // the parameters of Limit, if they are written here; nil for a limit of the policy file
	Settles   bool              // the hits are the cost of work that is done: they are charged to Limit, whatever is left
	Open      []string          // of a rule with a Limit: the keys whose values are open, which are the parts of that limit's key
	At        policyfile.Place  // where Limit is written

	Metadata map[string]any // for responses in which a descriptor is within a rule with Quota; nil for none

	Shadow, Quota  bool
	DetailedMetric bool
}

// A Unit is the window of a rule.
type Unit uint8

// The units. A week begins on Thursday, a month has 30 days, and a year 365: all are multiples of
// their length since 1970.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// Units are all units.
func Units() []Unit { return []Unit{Second, Minute, Hour, Day, Week, Month, Year} }

var unitNames = [...]string{"unknown", "second", "minute", "hour", "day", "week", "month", "year"}

// String returns the unit's name as files have it.
func (u Unit) String() string { return unitNames[u] }

// Length returns how long the windows of a unit are.
func (u Unit) Length() time.Duration {
	const day = 24 * time.Hour
	return [...]time.Duration{0, time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}[u]
}

// parseUnit reads a unit in any case; 0 for another text.
func parseUnit(text string) Unit {
	for _, u := range Units() {
		if strings.EqualFold(text, u.String()) {
			return u
		}
	}
	return 0
}

// Rules returns all rules, in the order of the files.
func (c *Config) Rules() []*Rule { return c.rules }

// HasDomain reports whether there are rules for a domain.
func (c *Config) HasDomain(domain string) bool { return c.domains[domain] != nil }

// A Match is the rule for a descriptor.
type Match struct {
	Rule *Rule // nil for none

	// for entries whose value was matched by a wildcard with share_threshold, the wildcard that takes
	// the place of the value in the counter's key, by their position; nil for none
	Shared []string

	// of a rule with a Limit: the values that the rule leaves open, which are the key of that limit
	Open []string

	// the path of the counter for metrics: that of the rule, with values where the file wants them
	Metric string
}

// A Pair is an entry of a descriptor. The generated type of Envoy's API has these methods.
type Pair interface {
	GetKey() string
	GetValue() string
}

// Find returns the rule for a descriptor of a domain. At each depth a descriptor with that value comes
// first, then wildcards in the order of the file, then the one without a value. The rule has exactly as
// many entries as the descriptor.
func Find[P Pair](c *Config, domain string, entries []P) (m Match) {
	at := c.domains[domain]
	if at == nil {
		return m
	}
	var found *descriptor
	var metric strings.Builder
	metrics := false
	for i, e := range entries {
		if found = at.find(e.GetKey(), e.GetValue()); found == nil {
			return Match{}
		}
		if found.shared {
			if m.Shared == nil {
				m.Shared = make([]string, len(entries))
			}
			m.Shared[i] = found.value
		}
		metrics = metrics || found.valueToMetric
		at = &found.below
	}
	if found == nil || found.rule == nil {
		return Match{}
	}
	m.Rule, m.Metric = found.rule, found.rule.Path
	if m.Rule.Limit != "" {
		m.Open = open(c.domains[domain], entries, m.Shared)
		return m
	}
	if metrics || m.Rule.DetailedMetric {
		at = c.domains[domain]
		metric.WriteString(domain)
		for i, e := range entries {
			d := at.find(e.GetKey(), e.GetValue())
			metric.WriteString("." + e.GetKey())
			if v := metricValue(d, e.GetValue(), m.Rule.DetailedMetric, i, m.Shared); v != "" {
				metric.WriteString("_" + v)
			}
			at = &d.below
		}
		m.Metric = metric.String()
	}
	return m
}

// open returns the values of entries that descriptors leave open: those without a value, and wildcards.
func open[P Pair](at *level, entries []P, shared []string) (all []string) {
	for i, e := range entries {
		d := at.find(e.GetKey(), e.GetValue())
		switch {
		case shared != nil && shared[i] != "":
			all = append(all, shared[i])
		case d.isOpen():
			all = append(all, e.GetValue())
		}
		at = &d.below
	}
	return all
}

// isOpen reports whether requests choose the value.
func (d *descriptor) isOpen() bool { return d.value == "" || d.pattern != nil }

// metricValue returns the value of one entry in the path of a metric.
func metricValue(d *descriptor, value string, detailed bool, i int, shared []string) string {
	switch {
	case shared != nil && shared[i] != "":
		return shared[i]
	case detailed || d.valueToMetric:
		return value
	}
	return d.value
}

// find returns the descriptor for an entry at one depth, or nil.
func (l *level) find(key, value string) *descriptor {
	if value != "" {
		if d := l.exact[entry{key, value}]; d != nil {
			return d
		}
	}
	for _, w := range l.wildcards {
		if w.key == key && w.matches(value) {
			return w
		}
	}
	return l.bare[key]
}

// matches reports whether a value has the parts of the pattern in their order, begins with the first
// and ends with the last.
func (d *descriptor) matches(value string) bool {
	first, last := d.pattern[0], d.pattern[len(d.pattern)-1]
	if !strings.HasPrefix(value, first) {
		return false
	}
	value = value[len(first):]
	for _, part := range d.pattern[1 : len(d.pattern)-1] {
		at := strings.Index(value, part)
		if at < 0 {
			return false
		}
		value = value[at+len(part):]
	}
	return strings.HasSuffix(value, last)
}
