// Package weirhttp is what HTTP needs around limits: who the client is, and the header fields that tell it about its limits. It
// translates, and decides nothing.
package weirhttp
