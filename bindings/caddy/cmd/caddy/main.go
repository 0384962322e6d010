// Caddy is Caddy with its standard modules, and tls.stek.rejoin.
package main

import (
	_ "time/tzdata"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/rejoin-tls/rejoin-caddy"
)

func main() { caddycmd.Main() }
