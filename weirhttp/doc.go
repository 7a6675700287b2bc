// Package weirhttp connects limits to HTTP: it finds the client's address behind trusted proxies,
// and sets the headers RateLimit, X-RateLimit and Retry-After. It makes no decisions.
package weirhttp
