// Package nginx plays the same requests at the same moments to a real nginx and to the gateway,
// whose policy weir import nginx has made of that nginx's configuration, and compares the responses:
// the same statuses in the same order, and delays within 20 ms. It has no code but tests.
//
//	go test ./proof/nginx -v                                  # some sequences for each directive
//	go test ./proof/nginx -v -sequences 1000 -timeout 0       # a thousand
//
// Sequences are drawn. What each request should get is worked out first, by nginx's arithmetic in a
// few lines, so that each decision is a quarter of a request's time away from the other one: a
// sequence whose requests arrived later than that is not compared, but played again with other
// keys. So is one that came out differently. It counts as different if it is so each time: what is
// not by chance stays.
//
// assertions_test.go has a row for each of the 65 assertions of nginx's own test files for
// limit_req and limit_conn, HTTP/2 included. Each has to hold for both. reference_test.go sends
// further requests of the same kinds to both. sites_test.go compares addresses, host names,
// certificates, redirects, paths and body sizes.
package nginx
