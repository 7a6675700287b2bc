// Package weircaddy limits requests in Caddy: a module with the directive weir, and with rate_limit as
// mholt/caddy-ratelimit has it. See docs/caddy.md.
//
// A configuration is turned into a policy, in the words of policy files, and the policy is owned by an
// active.Policy as in weir serve. It outlives a reload of Caddy's configuration, so that what was used
// stays used.
package weircaddy

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(Handler))
	caddy.RegisterModule(new(RateLimit))
	caddy.RegisterModule(adminAPI{})
	httpcaddyfile.RegisterGlobalOption("weir", parseApp)
	httpcaddyfile.RegisterHandlerDirective("weir", parseHandler)
	httpcaddyfile.RegisterHandlerDirective("rate_limit", parseRateLimit)
	// before logins, so that guesses of passwords are counted
	httpcaddyfile.RegisterDirectiveOrder("weir", httpcaddyfile.Before, "basic_auth")
	httpcaddyfile.RegisterDirectiveOrder("rate_limit", httpcaddyfile.Before, "basic_auth")
}
