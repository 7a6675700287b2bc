// Package traffic tests Weir as it is run: the real binary, between real clients (curl, wrk) and a
// real upstream (nginx), in real time if time is what is tested. The tests start and stop all of it
// on free loopback ports. A missing program is a failure that says what to install: apt install
// nginx wrk curl.
package traffic
