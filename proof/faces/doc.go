// Package faces asks for one limit through all services of weir serve at once: the gateway, Envoy's rate
// limit service, the Redis protocol, JSON, the hooks of proxies, and, in other processes over the same
// store, the middleware and Caddy. All of them share one count.
package faces
