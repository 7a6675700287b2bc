// Package faces asks for one limit through all services of weir serve at once: the gateway, Envoy's rate
// limit service, the Redis protocol, JSON, the hooks of proxies, and the middleware in another process
// over the same store. All of them share one count.
package faces
