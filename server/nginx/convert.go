package nginx

import (
	"slices"
	"strings"
)

// Options configure Import.
type Options struct {
	// where the gateway listens instead, without TLS, for a trial; default: where nginx listens
	Gateway string
	Admin   string // the address of the admin pages; default: none
	// limits count as nginx does, in milliseconds and thousandths of a request; default: exact
	Arithmetic bool
	Partial    bool // skip included files that cannot be read
}

// A Result is the outcome of Import.
type Result struct {
	Policy []byte // YAML
	// what the policy leaves out, and what differs: critical notes first, each kind in the order of
	// the files
	Notes []Note
}

// Critical reports whether there is a critical note.
func (r *Result) Critical() bool {
	return slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Critical })
}

// Import converts an nginx configuration to a policy file. For a configuration that nginx would
// refuse, the error is an *Error.
func Import(files Files, name string, o Options) (*Result, error) {
	parse := func(files Files, name string) ([]Directive, []Note, error) {
		all, err := Parse(files, name)
		return all, nil, err
	}
	if o.Partial {
		parse = parsePartly
	}
	all, skipped, err := parse(files, name)
	if err != nil {
		return nil, err
	}
	c := newConverter(name, o)
	c.notes = skipped
	for _, d := range all {
		switch {
		case d.Name == "http" && d.Opens:
			err = c.http(d)
		case d.Opens && d.Name != "events":
			c.note(d.Position, "%s is left out: only what is in http is turned into a policy", d.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	policy := c.yaml() // must come first: it may add notes
	c.noteOthers()
	c.noteHosts()
	sortNotes(c.notes)
	return &Result{c.withNotes(policy), c.notes}, nil
}

// converter converts directives to the parts of a policy.
type converter struct {
	Options
	name   string
	zones  map[string]*zone
	groups map[string]group    // upstream blocks
	maps   map[string]variable // from map and geo
	used   map[string]bool     // the variables, and the upstreams as "upstream NAME", that are carried over
	others []Directive         // left out; none of them changes which requests are limited
	notes  []Note
	noted  map[string]bool       // notes so far
	hosts  map[string][]Position // the proxy_pass of each upstream that gets another Host than from nginx

	limits    []limit
	upstreams []upstream
	servers   []*server
	addresses []address
	trusting  []trusting  // of the locations
	proxies   proxies     // of the policy
	pages     []Directive // error_page of http
	maxBody   *size       // of http
	ipv6      bool        // some address is an IPv6 address
}

func newConverter(name string, o Options) *converter {
	return &converter{
		Options: o, name: name, zones: map[string]*zone{}, groups: map[string]group{}, maps: map[string]variable{}, used: map[string]bool{}, noted: map[string]bool{}, hosts: map[string][]Position{},
	}
}

// http converts the http block. Definitions come first, because zones, upstreams and variables may
// follow the directives that use them.
func (c *converter) http(d Directive) error {
	for _, in := range d.Block {
		if err := c.define(in); err != nil {
			return err
		}
	}
	top := newLevel()
	if err := c.level(&top, d.Block); err != nil {
		return err
	}
	for _, in := range d.Block {
		if in.Name == "error_page" {
			c.pages = append(c.pages, in)
		}
	}
	c.maxBody, c.proxies = &top.body, top.proxies
	for _, in := range d.Block {
		if in.Name == "server" && in.Opens {
			if err := c.server(in, top); err != nil {
				return err
			}
			continue
		}
		c.leave(in, "http")
	}
	return c.connect()
}

// define records a directive of http that other directives refer to.
func (c *converter) define(d Directive) error {
	switch d.Name {
	case "limit_req_zone", "limit_conn_zone":
		z, err := parseZone(d)
		if err != nil {
			return err
		}
		if known := c.zones[z.name]; known != nil {
			return wrong(d, "give each zone a name of its own", "the zone %q is there already, in %v", z.name, known.d.Position)
		}
		c.zones[z.name] = z
	case "upstream":
		return c.upstream(d)
	case "map", "geo":
		c.variable(d)
	case "log_format":
		if strings.Contains(strings.Join(d.Args, " "), "$limit_") {
			c.note(d.Position, "log_format %s says what the limits did ($limit_req_status, $limit_conn_status): write access_log: { file: PATH, format: json }, whose decision and limit say it", first(d.Args))
		}
	}
	return nil
}

// first returns the first item of a list, or the zero value.
func first[T any](list []T) (t T) {
	if len(list) > 0 {
		t = list[0]
	}
	return t
}
