package weirjwt

import "net/http"

// NewClient is the client for URLs without Options.Client.
func NewClient() *http.Client { return newClient() }
