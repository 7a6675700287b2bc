// Package edge attacks the gateway from its clients' side, and replaces its process under load: raw
// bytes that can be read in two ways, slow and many clients, frames of HTTP/2 and WebSocket that are
// allowed or not, certificates that change, and a new process in the middle of traffic. It has only
// tests.
//
// The table of phases in which a client can be slow is in phases_test.go.
package edge
