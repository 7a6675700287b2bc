package sim

import (
	"math"
	"strings"
	"unicode"
)

// visitor is what is known of a client's ways: what it needs of limits, and what it seems to be.
type visitor struct {
	activity
	agent   string // the first that it sent
	path    string // the only one so far; empty after another
	paths   int32
	robots  bool // it has read /robots.txt
	errors  int64
	gaps    spread
	tops    [4]countedPath // the most frequent paths, nearly
	limited int64          // for Replay

	lag  [len(suggestRates)]int64 // for each rate: how long until the bucket is full again
	lack [len(suggestRates)]int64 // the most of that
}

// suggestRate is a rate that suggestions are made of: all have a whole number of nanoseconds for a request.
type suggestRate struct {
	text  string
	every int64
}

var suggestRates = [...]suggestRate{
	{"6/h", 600e9}, {"12/h", 300e9}, {"30/h", 120e9},
	{"1/m", 60e9}, {"2/m", 30e9}, {"3/m", 20e9}, {"5/m", 12e9}, {"10/m", 6e9}, {"15/m", 4e9}, {"20/m", 3e9}, {"30/m", 2e9}, {"40/m", 15e8},
	{"1/s", 1e9}, {"2/s", 5e8}, {"4/s", 25e7}, {"5/s", 2e8}, {"10/s", 1e8}, {"20/s", 5e7}, {"50/s", 2e7}, {"100/s", 1e7}, {"200/s", 5e6},
}

// spread is the mean and the variance of times, by Welford's method.
type spread struct {
	n          int64
	mean, from float64
}

func (s *spread) add(x float64) {
	s.n++
	d := x - s.mean
	s.mean += d / float64(s.n)
	s.from += d * (x - s.mean)
}

// regular reports whether the times are nearly equal.
func (s *spread) regular() bool {
	return s.n >= 20 && s.mean > 0 && math.Sqrt(s.from/float64(s.n)) < s.mean/10
}

const (
	longestAgent = 200
	longestLag   = 1 << 61 // no sum overflows
)

// add counts a request.
func (v *visitor) add(q *visit) {
	passed := int64(math.MaxInt64)
	if v.requests > 0 {
		passed = q.at - v.last
		v.gaps.add(float64(q.at-v.last) / 1e9)
	}
	v.activity.add(q.at)
	if v.agent == "" && q.agent != "" && q.agent != "-" {
		v.agent = strings.Clone(q.agent[:min(len(q.agent), longestAgent)])
	}
	if q.status >= 400 {
		v.errors++
	}
	if path := q.path; v.paths == 0 || v.paths == 1 && path != v.path {
		v.paths++
		v.path = strings.Clone(path[:min(len(path), longestAgent)])
	}
	v.robots = v.robots || q.path == "/robots.txt"
	v.addPath(q.path)
	for i := range suggestRates {
		v.lag[i] = min(max(v.lag[i]-passed, 0)+suggestRates[i].every, longestLag)
		v.lack[i] = max(v.lack[i], v.lag[i])
	}
}

// countedPath is a path and how often it was asked for.
type countedPath struct {
	path  string
	count int64
}

// addPath counts a path. When there is no room for another one, it takes the place of the rarest, with its count: a
// frequent path cannot be missed.
func (v *visitor) addPath(path string) {
	path = path[:min(len(path), longestAgent)]
	rarest := 0
	for i := range v.tops {
		if v.tops[i].path == path {
			v.tops[i].count++
			return
		}
		if v.tops[i].count < v.tops[rarest].count {
			rarest = i
		}
	}
	v.tops[rarest] = countedPath{strings.Clone(path), v.tops[rarest].count + 1}
}

// burst returns the smallest burst with which a token bucket of a rate would never have refused the client.
func (v *visitor) burst(rate int) int64 {
	every := suggestRates[rate].every
	return (v.lack[rate] + every - 1) / every
}

// kind is what a client seems to be.
type kind uint8

const (
	person kind = iota
	bot
	monitor
)

// String returns the kind's name.
func (k kind) String() string { return [...]string{"person", "bot", "monitor"}[k] }

// Parts of the User-Agent, in lower case, of programs that check whether a server works, and of those that read it.
var (
	monitorAgents = []string{"uptimerobot", "pingdom", "statuscake", "site24x7", "kube-probe", "elb-healthchecker", "googlehc", "prometheus", "blackbox",
		"nagios", "check_http", "datadog", "newrelicpinger", "zabbix", "monit/", "uptime-kuma", "healthcheck", "health-check", "munin", "icinga"}
	botAgents = []string{"bot", "crawl", "spider", "slurp", "archiver", "scraper", "scrapy", "feed", "rss", "facebookexternalhit", "mediapartners", "bingpreview",
		"python", "curl/", "wget", "libwww", "go-http-client", "java/", "okhttp", "apache-httpclient", "httpclient", "ruby", "perl", "php/", "node-fetch", "axios", "headless", "phantomjs"}
)

// kind tells by what it says of itself, and by what it does, what a client is, and its name.
func (v *visitor) kind() (kind, string) {
	agent := strings.ToLower(v.agent)
	for _, part := range monitorAgents {
		if strings.Contains(agent, part) {
			return monitor, agentName(v.agent, part)
		}
	}
	for _, part := range botAgents {
		if strings.Contains(agent, part) {
			return bot, agentName(v.agent, part)
		}
	}
	switch {
	case v.robots:
		return bot, "reads /robots.txt"
	case v.paths == 1 && v.gaps.regular():
		return monitor, "asks for one path at regular times"
	}
	return person, ""
}

// agentName returns the word of a User-Agent that has a part, in lower case; without its version.
func agentName(agent, part string) string {
	words := strings.FieldsFunc(agent, func(r rune) bool { return strings.ContainsRune(" ;,()+/\"\\", r) || !unicode.IsPrint(r) })
	for _, word := range words {
		if strings.Contains(strings.ToLower(word), strings.Trim(part, "/")) && !strings.Contains(word, "://") {
			return word[:min(len(word), 40)]
		}
	}
	return strings.Trim(part, "/")
}
