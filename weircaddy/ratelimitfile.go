package weircaddy

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// parseRateLimit reads the directive rate_limit:
//
//	rate_limit {
//	    zone NAME {
//	        match { ... }
//	        key KEY
//	        window DURATION
//	        events N
//	        ipv4_prefix N
//	        ipv6_prefix N
//	    }
//	    distributed { ... }
//	    log_key
//	    jitter SHARE
//	    storage MODULE { ... }
//	    sweep_interval DURATION
//	}
func parseRateLimit(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	limit := new(RateLimit)
	h.Next()
	if h.NextArg() {
		return nil, h.ArgErr()
	}
	for nesting := h.Nesting(); h.NextBlock(nesting); {
		if err := limit.setting(h.Dispenser); err != nil {
			return nil, err
		}
	}
	if err := limit.check(); err != nil {
		return nil, h.WrapErr(err)
	}
	return limit, nil
}

// setting reads one setting, whose name is the current token.
func (h *RateLimit) setting(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "zone":
		return h.zone(d)
	case "distributed":
		return h.distributed(d)
	case "log_key":
		h.LogKey = true
		return end(d)
	case "jitter":
		text, err := value(d)
		if err != nil {
			return err
		}
		if h.Jitter, err = strconv.ParseFloat(text, 64); err != nil {
			return d.Errf("jitter %q is no share: write one from 0 to 1, like 0.2", text)
		}
		return nil
	case "sweep_interval":
		return duration(d, &h.SweepInterval)
	case "storage":
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		for nesting := d.Nesting(); d.NextBlock(nesting); {
			d.RemainingArgs() // of a module that is not used
		}
		h.StorageRaw = caddyconfig.JSON(map[string]string{"module": name}, nil)
		return nil
	}
	return d.Errf("rate_limit has no setting %q: it has zone, distributed, log_key, jitter, storage and sweep_interval", d.Val())
}

// zone reads a zone.
func (h *RateLimit) zone(d *caddyfile.Dispenser) error {
	name, err := value(d)
	if err != nil {
		return err
	}
	if h.RateLimits[name] != nil {
		return d.Errf("the zone %s is there twice", name)
	}
	z := new(Zone)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := z.setting(d); err != nil {
			return err
		}
	}
	if h.RateLimits == nil {
		h.RateLimits = map[string]*Zone{}
	}
	h.RateLimits[name] = z
	return nil
}

// setting reads one setting of a zone.
func (z *Zone) setting(d *caddyfile.Dispenser) (err error) {
	switch d.Val() {
	case "match":
		matchers, err := caddyhttp.ParseCaddyfileNestedMatcherSet(d)
		if err != nil {
			return err
		}
		z.MatcherSetsRaw = append(z.MatcherSetsRaw, matchers)
		return nil
	case "key":
		z.Key, err = value(d)
		return err
	case "window":
		return duration(d, &z.Window)
	case "events":
		return number(d, &z.MaxEvents)
	case "ipv4_prefix":
		return number(d, &z.IPv4Prefix)
	case "ipv6_prefix":
		return number(d, &z.IPv6Prefix)
	}
	return d.Errf("a zone has no setting %q: it has match, key, window, events, ipv4_prefix and ipv6_prefix", d.Val())
}

// distributed reads how counts are shared.
func (h *RateLimit) distributed(d *caddyfile.Dispenser) (err error) {
	h.Distributed = new(Distributed)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch d.Val() {
		case "store":
			h.Distributed.Store, err = value(d)
		case "read_interval":
			err = duration(d, &h.Distributed.ReadInterval)
		case "write_interval":
			err = duration(d, &h.Distributed.WriteInterval)
		case "purge_age":
			err = duration(d, &h.Distributed.PurgeAge)
		default:
			err = d.Errf("distributed has no setting %q: it has store, read_interval, write_interval and purge_age", d.Val())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value reads the one value of a setting.
func value(d *caddyfile.Dispenser) (string, error) {
	if !d.NextArg() {
		return "", d.ArgErr()
	}
	text := d.Val()
	return text, end(d)
}

// end fails if the line goes on.
func end(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

func duration(d *caddyfile.Dispenser, to *caddy.Duration) error {
	text, err := value(d)
	if err != nil {
		return err
	}
	n, err := caddy.ParseDuration(text)
	if err != nil || n <= 0 {
		return d.Errf("%q is no duration: write one like 1m", text)
	}
	*to = caddy.Duration(n)
	return nil
}

func number(d *caddyfile.Dispenser, to *int) error {
	text, err := value(d)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return d.Errf("%q is not a whole number of at least 1", text)
	}
	*to = n
	return nil
}
