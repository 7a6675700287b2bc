// Package edge attacks the gateway from its clients' side, and replaces its process under load: raw
// bytes that can be read in two ways, slow and many clients, certificates that change, and a new
// process in the middle of traffic. It has only tests.
package edge
