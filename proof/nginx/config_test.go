package nginx

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A class is a directive that is compared, in several variants.
type class struct {
	name     string
	zones    func(name string) string // of one variant, for the http block
	variants []variant
}

// A variant is one use of a directive, in a location of its own.
type variant struct {
	location string // what stands in it; ZONE is the name of its zone
	status   int
	dry      bool
	conns    int // of a limit_conn
	limits   []spec
	draw     func(r *rand.Rand, id string) ask // a request of one sequence
}

// spec is a limit_req, in thousandths of a request, with its key.
type spec struct {
	rate, burst, delay int64
	key                func(ask) string
}

// ask is a request.
type ask struct {
	method, query string
	fields        map[string]string
	hold          time.Duration // how long the upstream takes
}

// byK is a request with the key in $arg_k.
func byK(_ *rand.Rand, id string) ask { return ask{method: "GET", query: "k=" + id} }

func keyK(a ask) string { return a.query }

// reqs are variants of a limit_req on $arg_k, by their rates in thousandths.
func reqs(burst, delay int64, parameters string, rates ...int64) (all []variant) {
	for _, rate := range rates {
		all = append(all, variant{
			location: "limit_req zone=ZONE" + parameters + ";", status: 503, draw: byK,
			limits: []spec{{rate, burst * 1000, delay * 1000, keyK}},
		})
	}
	return all
}

// zoneOf is a limit_req_zone.
func zoneOf(key, rate string) func(string) string {
	return func(name string) string {
		return fmt.Sprintf("limit_req_zone %s zone=%s:1m rate=%s;\n", key, name, rate)
	}
}

// rated gives each variant the zone of its own rate.
func rated(name string) string { return zoneOf("$arg_k", "RATE")(name) }

const never = 1 << 40 // for nodelay

// classes are the directives. Rates are such that a request takes 240 to 500 ms.
func classes() []class {
	seconds, minutes := []int64{2000, 3000, 4000}, []int64{2083, 2766, 4166} // 125, 166 and 250 a minute
	withStatus := reqs(1, never, " burst=1 nodelay", 2000, 3000, 4000)
	for i, status := range []int{429, 418, 599} {
		withStatus[i].status = status
		withStatus[i].location += fmt.Sprintf(" limit_req_status %d;", status)
	}
	dry := append(reqs(0, 0, "", 4000), reqs(1, 0, " burst=1", 3000)...)
	for i := range dry {
		dry[i].dry, dry[i].status = true, 200
		dry[i].location += " limit_req_dry_run on;"
	}
	return []class{
		{"rate r/s", rated, reqs(0, 0, "", seconds...)},
		{"rate r/m", rated, reqs(0, 0, "", minutes...)},
		{"rate r/m with burst", rated, reqs(2, 0, " burst=2", minutes...)},
		{"burst", rated, append(reqs(1, 0, " burst=1", seconds...), reqs(3, 0, " burst=3", seconds...)...)},
		{"nodelay", rated, append(reqs(1, never, " burst=1 nodelay", seconds...), reqs(4, never, " burst=4 nodelay", seconds...)...)},
		{"delay=N", rated, append(reqs(3, 1, " burst=3 delay=1", seconds...), reqs(4, 2, " burst=4 delay=2", seconds...)...)},
		{"several limits", severalZones, several()},
		{"several variables", zoneOf("$arg_a$http_x_b:$request_method", "4r/s"), []variant{variables()}},
		{"empty keys", zoneOf("$http_x_key$arg_k", "4r/s"), []variant{empties()}},
		{"limit_conn", connZone, connections("limit_conn ZONE %d;", 503, 1, 2, 3)},
		{"limit_conn_status", connZone, connections("limit_conn ZONE %d; limit_conn_status 509;", 509, 1, 2)},
		{"limit_conn_dry_run", connZone, undone(connections("limit_conn ZONE %d; limit_conn_dry_run on;", 200, 1))},
		{"limit_req_status", rated, withStatus},
		{"limit_req_dry_run", rated, dry},
	}
}

// severalZones are two zones: by $arg_k, and by $arg_q.
func severalZones(name string) string {
	return zoneOf("$arg_k", "4r/s")(name+"_k") + zoneOf("$arg_q", "3r/s")(name+"_q")
}

func several() (all []variant) {
	argument := func(name string) func(ask) string {
		return func(a ask) string {
			for pair := range strings.SplitSeq(a.query, "&") {
				if value, ok := strings.CutPrefix(pair, name+"="); ok {
					return value
				}
			}
			return ""
		}
	}
	draw := func(r *rand.Rand, id string) ask {
		return ask{method: "GET", query: "k=" + id + []string{"", "&q=" + id + "1", "&q=" + id + "1", "&q=" + id + "2"}[r.IntN(4)]}
	}
	for _, v := range []struct {
		text       string
		first, two [2]int64
	}{
		{"limit_req zone=ZONE_k burst=3 nodelay; limit_req zone=ZONE_q burst=1;", [2]int64{3, never}, [2]int64{1, 0}},
		{"limit_req zone=ZONE_k burst=1; limit_req zone=ZONE_q burst=2;", [2]int64{1, 0}, [2]int64{2, 0}},
		{"limit_req zone=ZONE_k burst=2 delay=1; limit_req zone=ZONE_q;", [2]int64{2, 1}, [2]int64{0, 0}},
	} {
		all = append(all, variant{
			location: v.text, status: 503, draw: draw,
			limits: []spec{
				{4000, v.first[0] * 1000, v.first[1] * 1000, argument("k")},
				{3000, v.two[0] * 1000, v.two[1] * 1000, argument("q")},
			},
		})
	}
	return all
}

// variables is a key of three variables, one of which may be missing.
func variables() variant {
	return variant{
		location: "limit_req zone=ZONE burst=1 nodelay;", status: 503,
		draw: func(r *rand.Rand, id string) ask {
			a := ask{method: []string{"GET", "GET", "GET", "DELETE"}[r.IntN(4)], query: "a=" + id + []string{"x", "x", "x", "y"}[r.IntN(4)], fields: map[string]string{}}
			if r.IntN(4) > 0 {
				a.fields["X-B"] = "1"
			}
			return a
		},
		limits: []spec{{4000, 1000, never, func(a ask) string { return a.query + a.fields["X-B"] + ":" + a.method }}},
	}
}

// empties is a key that is often empty.
func empties() variant {
	return variant{
		location: "limit_req zone=ZONE;", status: 503,
		draw: func(r *rand.Rand, id string) ask {
			a := ask{method: "GET", fields: map[string]string{}}
			switch r.IntN(7) {
			case 0, 1, 2:
				a.fields["X-Key"] = id
			case 3:
				a.fields["X-Key"] = ""
			case 4:
				a.query = "k=" + id + "q"
			case 5:
				a.query = "k="
			}
			return a
		},
		limits: []spec{{4000, 0, 0, func(a ask) string { return a.fields["X-Key"] + strings.TrimPrefix(a.query, "k=") }}},
	}
}

func connZone(name string) string { return "limit_conn_zone $arg_k zone=" + name + ":1m;\n" }

func connections(text string, status int, most ...int) (all []variant) {
	for _, n := range most {
		all = append(all, variant{location: fmt.Sprintf(text, n), status: status, conns: n, draw: byK})
	}
	return all
}

// undone has variants refuse nothing.
func undone(all []variant) []variant {
	for i := range all {
		all[i].dry = true
	}
	return all
}

// rateText is a rate as nginx's configuration has it.
func rateText(thousandths int64) string {
	for _, perMinute := range []int64{125, 166, 250} {
		if perMinute*1000/60 == thousandths {
			return fmt.Sprintf("%dr/m", perMinute)
		}
	}
	return fmt.Sprintf("%dr/s", thousandths/1000)
}

// zone is the name of a variant's zone, and location its path.
func zone(class, variant int) string     { return fmt.Sprintf("z%d_%d", class, variant) }
func location(class, variant int) string { return fmt.Sprintf("/%d/%d/", class, variant) }

// block is the http block of nginx's configuration.
func block(all []class, upstream string) string {
	var zones, locations strings.Builder
	for i, c := range all {
		for j, v := range c.variants {
			text := c.zones(zone(i, j))
			if len(v.limits) > 0 {
				text = strings.ReplaceAll(text, "RATE", rateText(v.limits[0].rate))
			}
			zones.WriteString(text)
			fmt.Fprintf(&locations, "location %s { %s proxy_pass http://up; }\n", location(i, j), strings.ReplaceAll(v.location, "ZONE", zone(i, j)))
		}
	}
	return `
	error_log error.log info;
	keepalive_requests 1000000;
	upstream up { server ` + upstream + `; keepalive 256; }
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_ignore_client_abort off;
	` + zones.String() + `
	server {
		listen {{.Addr}};
		` + locations.String() + `
	}`
}
