// Command caddy is Caddy with its standard modules and weircaddy.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/weirflow/weir/weircaddy"
)

func main() { caddycmd.Main() }
