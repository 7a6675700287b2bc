package weircaddy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirflow/weir/policy"
)

// listFields are the fields of a policy that are lists also with one value.
var listFields = []string{"exempt", "headers"}

// readBlock reads a block of lines NAME VALUE..., NAME { ... } as fields of a map. A name alone is true.
func readBlock(d *caddyfile.Dispenser) (fields []*node, err error) {
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		f, err := readField(d)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(fields, func(g *node) bool { return g.name == f.name }) {
			return nil, d.Errf("%s is there twice", f.name)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// readField reads one line, whose name is the current token, with its block.
func readField(d *caddyfile.Dispenser) (*node, error) {
	n := &node{name: d.Val(), from: written(d)}
	var args []*node
	for d.NextArg() {
		args = append(args, argument(d))
	}
	fields, err := readBlock(d)
	switch {
	case err != nil:
		return nil, err
	case len(fields) > 0 && len(args) > 0:
		return nil, d.Errf("%s has values and a block: write one of them", n.name)
	case len(fields) > 0:
		n.kind, n.fields = isMap, fields
	case slices.Contains(policy.Algorithms(), n.name):
		n.kind = isMap
		return n, parameters(d, n, args)
	case len(args) == 0:
		n.scalar = true
	case len(args) == 1 && !slices.Contains(listFields, n.name):
		n.scalar = args[0].scalar
	default:
		n.kind, n.list = isList, args
	}
	return n, nil
}

// written is where the current token is.
func written(d *caddyfile.Dispenser) string { return fmt.Sprintf("%s:%d", d.File(), d.Line()) }

// argument reads a value: a number, true or false, or a text.
func argument(d *caddyfile.Dispenser) *node {
	n := &node{from: written(d), scalar: d.Val()}
	if d.Token().Quoted() {
		return n
	}
	var value any
	if json.Unmarshal([]byte(d.Val()), &value) == nil {
		switch value.(type) {
		case bool:
			n.scalar = value
		case float64:
			n.scalar = json.Number(d.Val())
		}
	}
	return n
}

// parameters reads the parameters of an algorithm in one line: rate=10/s burst=20.
func parameters(d *caddyfile.Dispenser, n *node, args []*node) error {
	for _, a := range args {
		name, value, ok := strings.Cut(a.text(), "=")
		if !ok {
			return d.Errf("%s: %q is no parameter: write %s rate=10/s burst=20, or a block", n.name, a.text(), n.name)
		}
		f := &node{name: name, from: a.from, scalar: value}
		if json.Valid([]byte(value)) && strings.Trim(value, "0123456789") == "" {
			f.scalar = json.Number(value)
		}
		n.fields = append(n.fields, f)
	}
	return nil
}

// readLimit reads limit NAME { ... }, whose first word is the current token.
func readLimit(d *caddyfile.Dispenser) (*node, error) {
	from := written(d)
	if !d.NextArg() {
		return nil, d.Err("a limit has a name: write limit login { ... }")
	}
	n := &node{name: d.Val(), from: from, kind: isMap}
	if d.NextArg() {
		return nil, d.Errf("%q is too much: the limit's settings are a block, limit %s { ... }", d.Val(), n.name)
	}
	fields, err := readBlock(d)
	if err != nil {
		return nil, err
	}
	n.fields = withBucket(fields, from)
	return n, nil
}

// withBucket puts the parameters rate, burst and initial, where they are written without an algorithm,
// into a token_bucket.
func withBucket(fields []*node, from string) []*node {
	var rest []*node
	bucket := &node{name: "token_bucket", from: from, kind: isMap}
	for _, f := range fields {
		if f.name == "rate" || f.name == "burst" || f.name == "initial" {
			bucket.fields = append(bucket.fields, f)
			continue
		}
		rest = append(rest, f)
	}
	if len(bucket.fields) > 0 {
		rest = append(rest, bucket)
	}
	return rest
}

// shortMap turns NAME VALUE into NAME { number: VALUE }, or { word: VALUE } for a text.
func shortMap(f *node, number, word string) {
	if f.kind != isScalar {
		return
	}
	field := &node{name: word, from: f.from, scalar: f.scalar}
	if _, ok := f.scalar.(json.Number); ok {
		field.name = number
	}
	f.kind, f.scalar, f.fields = isMap, nil, []*node{field}
}

// parseApp reads the global option weir.
func parseApp(d *caddyfile.Dispenser, _ any) (any, error) {
	d.Next()
	d = longForms(d)
	d.Next()
	if d.NextArg() {
		return nil, d.Err("the global option weir has a block only: write weir { ... }")
	}
	shared := &node{kind: isMap}
	below := func(name, from string, f *node) {
		m := shared.get(name)
		if m == nil {
			m = &node{name: name, from: from, kind: isMap}
			shared.fields = append(shared.fields, m)
		}
		m.fields = append(m.fields, f)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch from := written(d); d.Val() {
		case "limit":
			l, err := readLimit(d)
			if err != nil {
				return nil, err
			}
			below("limits", from, l)
		case "store":
			s, err := readStore(d)
			if err != nil {
				return nil, err
			}
			below("stores", from, s)
		case "headers", "plans":
			f, err := readField(d)
			if err != nil {
				return nil, err
			}
			shared.fields = append(shared.fields, f)
		default:
			return nil, d.Errf("weir has no option %q: it has limit, store, headers and plans", d.Val())
		}
	}
	if err := checkApp(shared); err != nil {
		return nil, err
	}
	data, err := shared.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "weir", Value: caddyconfig.JSON(App{Policy: data}, nil)}, nil
}

// readStore reads store NAME URL { ... }.
func readStore(d *caddyfile.Dispenser) (*node, error) {
	n := &node{from: written(d), kind: isMap}
	url := &node{name: "url"}
	if !d.NextArg() {
		return nil, d.Err("a store has a name and a URL: write store shared redis://127.0.0.1:6379/0")
	}
	n.name = d.Val()
	if d.NextArg() {
		url.from, url.scalar = written(d), d.Val()
		n.fields = append(n.fields, url)
	}
	if d.NextArg() {
		return nil, d.Errf("%q is too much: the store's settings are a block", d.Val())
	}
	fields, err := readBlock(d)
	n.fields = append(n.fields, fields...)
	return n, err
}

// parseHandler reads the directive weir:
//
//	weir [MATCHER] [LIMIT...] {
//	    limit NAME { ... }
//	    policy FILE
//	    refused ...
//	    waiting ...
//	}
func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next()
	from := written(h.Dispenser)
	handler := &Handler{Limits: h.RemainingArgs()}
	var own []*node
	route := &node{kind: isMap, from: from}
	for nesting := h.Nesting(); h.NextBlock(nesting); {
		switch h.Val() {
		case "limit":
			l, err := readLimit(h.Dispenser)
			if err != nil {
				return nil, err
			}
			own = append(own, l)
			handler.Limits = append(handler.Limits, l.name)
		case "policy":
			if !h.Args(&handler.PolicyFile) {
				return nil, h.ArgErr()
			}
		case "refused", "waiting":
			f, err := readField(h.Dispenser)
			if err != nil {
				return nil, err
			}
			if f.name == "refused" {
				shortMap(f, "status", "body")
			} else {
				shortMap(f, "max", "max")
			}
			route.fields = append(route.fields, f)
		default:
			return nil, h.Errf("weir has no setting %q: it has limit, policy, refused and waiting", h.Val())
		}
	}
	if handler.PolicyFile != "" && (len(handler.Limits) > 0 || len(route.fields) > 0) {
		return nil, h.Err("with a policy file, its routes say which limits apply: write limits, refused and waiting there")
	}
	if err := handler.fill(own, route); err != nil {
		return nil, h.WrapErr(err)
	}
	if handler.PolicyFile != "" {
		return handler, nil
	}
	return handler, checkHandler(h, handler.Limits, own, route, from)
}

// fill sets the fields of the JSON configuration.
func (h *Handler) fill(own []*node, route *node) error {
	for _, l := range own {
		if h.Define[l.name] != nil {
			return fmt.Errorf("the limit %q is there twice", l.name)
		}
		data, err := l.MarshalJSON()
		if err != nil {
			return err
		}
		if h.Define == nil {
			h.Define = map[string]json.RawMessage{}
		}
		h.Define[l.name] = data
	}
	for _, f := range route.fields {
		data, err := f.MarshalJSON()
		if err != nil {
			return err
		}
		if f.name == "refused" {
			h.Refused = data
		} else {
			h.Waiting = data
		}
	}
	return nil
}

// checkHandler checks what a handler says, so that mistakes are found with their lines.
func checkHandler(h httpcaddyfile.Helper, names []string, own []*node, route *node, from string) error {
	if len(names) == 0 {
		return fmt.Errorf("%s: weir names no limit: write weir NAME, or weir { limit NAME { ... } }", from)
	}
	shared := &node{kind: isMap}
	if app, ok := h.Option("weir").(httpcaddyfile.App); ok {
		var a App
		if err := json.Unmarshal(app.Value, &a); err != nil {
			return err
		}
		var err error
		if shared, err = fromJSON("", "", a.Policy); err != nil {
			return err
		}
	}
	limits, err := resolve(names, own, shared)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	_, err = composed(shared, limits, []*node{routeOf(names, route)}).parse()
	return err
}

// resolve finds limits by name: those of the handler, then those of the global option.
func resolve(names []string, own []*node, shared *node) (limits []*node, err error) {
	for i, name := range names {
		l := (&node{fields: own}).get(name)
		if l == nil {
			l = shared.get("limits").get(name)
		}
		switch {
		case l == nil:
			return nil, fmt.Errorf("there is no limit %q: define it here, or in the global option weir", name)
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("the limit %q is there twice", name)
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// routeOf returns a handler as a route of a policy.
func routeOf(names []string, settings *node) *node {
	list := &node{name: "limits", from: settings.from, kind: isList}
	for _, name := range names {
		list.list = append(list.list, &node{from: settings.from, scalar: name})
	}
	return &node{kind: isMap, from: settings.from, fields: append([]*node{list}, settings.fields...)}
}
