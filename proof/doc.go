// Package proof tests the rules of Weir by properties over random schedules, by a search for
// counterexamples, and by histories of many threads. It has no code but tests, and is a module of
// its own for their dependencies.
//
// Every test is named after the rule it is about (docs/guarantees.md has them all), and runs it for
// each limit and each holder of state: the pure Step, Prepared, weir.Limiter and keyed.Limiter, in
// process, on a virtual clock.
//
//	rule                        tests
//	 1  never over              over_test.go, search_test.go, bubble_test.go
//	 2  never lost              never_lost_test.go
//	 3  exact rates             exact_test.go, beside the reference model in exact fractions
//	 4  RetryAfter              retry_test.go
//	 5  time only forward       retry_test.go
//	 6  any number is safe      safe_test.go
//	 7  memory has a ceiling    keyed_test.go
//	 9  keys never share        keyed_test.go
//	10  SetLimit keeps the used exact_test.go, over_test.go
//	    threads                 linear_test.go, beside the reference model, checked for being linearizable
//	    Concurrency             concurrency_test.go and linear_places_test.go, beside a model of its own (places_test.go)
//	    cold                    cold_test.go: a WarmUp that starts cold
//
// What shows that the tests would fail: rules for giving back that are known to be wrong are found
// by the same search (rules_test.go), and limiters with planted races by the same checker
// (planted_test.go).
//
// # Running
//
//	go test ./proof                                                # 25 checks of each property, the same each time
//	WEIR_SEED=77 go test ./proof                                   # others
//	go test ./proof -run Rule4 -rapid.checks=100000 -timeout 0     # more of them; `make long` does this for all
//	go test ./proof -run Rule1Nothing -rapid.checks=5000           # the search: 60 times as many schedules
//	go test ./proof -run Linear -count=1000                        # other histories
//
// A failure prints the schedule, made as short as it gets, and its seed: WEIR_SEED set to that
// begins with it. The threads of linear_test.go are scheduled by the runtime: a seed gives the same
// calls, not the same history.
package proof
