// Package edge attacks the gateway from the side of its clients, and replaces it under them: raw
// bytes that can be read in two ways, clients that are slow or many, certificates that change, and
// a new process in the middle of traffic. It has only tests.
package edge
