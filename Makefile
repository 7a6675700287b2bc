# Everything here works from a fresh clone with Go installed.
#
#   make test    install what the tests need, then run the tests of all modules with the race detector, and without it
#                the searches that have one goroutine
#   make lint    formatting, go vet, golangci-lint, go mod tidy
#   make long    random seeds, long walks, searches and fuzz targets: hours; prints its seed, and how to run again what failed
#   make bench   Weir beside its peers, on a machine that is otherwise quiet
#   make report  the same three times, written to bench/REPORT.md with plots: hours
#
# make test draws nothing at random: see internal/seeds. WEIR_SEED=123 make test runs it with another seed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# A directory with a go.mod is a module, and each is built and tested alone: what a workspace would hide is found.
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*' | sort))
export GOWORK := off

# What the tests start: a command, and the Debian package that brings it.
NEEDS := chromium:chromium node:nodejs npm:npm nginx:nginx wrk:wrk curl:curl gunicorn:gunicorn php:php-cli php-cgi:php-cgi uwsgi_python3:uwsgi-plugin-python3 lighttpd:lighttpd apache2:apache2-bin pg_ctlcluster:postgresql pgbouncer:pgbouncer redis-server:redis-server redis-benchmark:redis-tools redis-sentinel:redis-sentinel h2load:nghttp2-client caddy:caddy haproxy:haproxy memcached:memcached etcd:etcd-server mariadb-install-db:mariadb-server tmux:tmux prometheus:prometheus

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

TIMEOUT ?= 20m

# How many modules are tested side by side. Their tests wait for servers and timers more than they compute.
JOBS ?= 2

# proof/ takes the longest and comes first.
TESTS := $(addprefix test-module/,$(filter ./proof,$(MODULES)) $(filter-out ./proof,$(MODULES)))

.PHONY: test needs browser build vet lint tidy long fuzz bench report $(TESTS)

# The packages of a module that have tests.
TESTED := go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...

# test has a temporary folder of its own, and fails where something is left in it, or in the working tree. The programs
# of this repository that tests run are built once (proof/servers). It counts
# the packages that reported a result: a recipe that skips some by mistake would otherwise be green.
test: needs vet
	@tmp=$$(mktemp -d); before=$$(git status --porcelain 2>/dev/null || true); failed=0; \
	mkdir $$tmp/t $$tmp/reports $$tmp/builds; touch $$tmp/failed; \
	for m in $(MODULES); do (cd $$m && $(TESTED)) || { rm -rf $$tmp; exit 1; }; done | sed '/^$$/d' | sort >$$tmp/tested; \
	echo "testing $(words $(TESTS)) modules, $(JOBS) at a time; each prints when it is done"; \
	TMPDIR=$$tmp/t FAILED=$$tmp/failed REPORTS=$$tmp/reports WEIR_BUILDS=$$tmp/builds $(MAKE) --no-print-directory -k -j$(JOBS) --output-sync=target $(TESTS) || failed=1; \
	find $$tmp/reports -type f -exec cat {} + | awk '/^(ok|FAIL)[ \t]/ {print $$2}' | sort -u >$$tmp/reported; \
	count=$$(wc -l <$$tmp/tested); silent=$$(comm -23 $$tmp/tested $$tmp/reported | xargs); \
	left=$$(ls -A $$tmp/t); names=$$(sort $$tmp/failed | xargs); rm -rf $$tmp; \
	[ $$count != 0 ] && [ -z "$$silent" ] || { echo "$$count packages have tests. These reported no result: $$silent"; failed=1; }; \
	[ -z "$$left" ] || { echo "The tests left in the temporary folder:" $$left; failed=1; }; \
	[ "$$before" = "$$(git status --porcelain 2>/dev/null || true)" ] || { echo "The tests changed the working tree:"; git status --short; failed=1; }; \
	[ -z "$$names" ] || echo "FAILED: the tests of $$names"; \
	[ $$failed != 0 ] || echo "green: $$count packages of $(words $(TESTS)) modules"; exit $$failed

# -count=1: the test cache does not notice when a server or a page that the tests run changes. go vet has been run.
GO_TEST := go test -vet=off -count=1 -timeout $(TIMEOUT)

# With the race detector, a program sleeps before it exits, by default for a second, in case another thread is about to
# report a race. The tests start hundreds of programs.
test: export GORACE := atexit_sleep_ms=100

# A module without tests (weircaddy, whose tests are proof/caddy) is not compiled again with the race detector.
# Tests that call raced.Skip (internal/raced) skip themselves with the race detector, and run once more without it.
$(TESTS): test-module/%:
	@echo "== $*"; cd $* || exit 1; failed=0; \
	[ -n "$$($(TESTED))" ] || exit 0; \
	$(GO_TEST) -race ./... | tee "$$REPORTS/$(subst /,_,$*).txt" || failed=1; \
	skipped=$$(go list -f '{{.Dir}} {{.TestImports}} {{.XTestImports}}' ./... | awk '/ .*internal\/raced/ {print $$1}'); \
	for dir in $$skipped; do \
		names=$$(awk -F '[ (]' '/^func Test/ {name = $$2} /raced\.Skip\(t\)/ {print name}' $$dir/*_test.go | paste -sd '|'); \
		[ -z "$$names" ] || (cd $$dir && $(GO_TEST) -run "^($$names)\$$" .) || failed=1; \
	done; \
	[ $$failed = 0 ] || { echo "$*" >>$$FAILED; exit 1; }

# needs installs what is lacking where it may, and otherwise says what to install.
needs:
	@lacking=""; \
	for n in $(NEEDS); do command -v "$${n%%:*}" >/dev/null || lacking="$$lacking $${n##*:}"; done; \
	command -v gcc >/dev/null || command -v clang >/dev/null || lacking="$$lacking gcc libc6-dev"; \
	[ -z "$$lacking" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing$$lacking"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$lacking >/dev/null; \
	else \
		echo "The tests need$$lacking. On Debian or Ubuntu: sudo apt-get install$$lacking" >&2; exit 1; \
	fi
	@$(MAKE) --no-print-directory browser

# browser installs what drives the browser of proof/browser, the clients of proof/llm, proof/resp and proof/envoy, the linter and generator of proof/service, and the schema of proof/observe: packages pinned by their checksums, and none of their scripts run.
browser: proof/browser/node_modules/playwright-core proof/llm/node_modules/openai proof/resp/node_modules/ioredis proof/envoy/node_modules/@grpc/grpc-js proof/service/node_modules/typescript proof/observe/node_modules/typescript
proof/browser/node_modules/playwright-core: proof/browser/package-lock.json
	cd proof/browser && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@
proof/llm/node_modules/openai: proof/llm/package-lock.json
	cd proof/llm && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@
proof/resp/node_modules/ioredis: proof/resp/package-lock.json
	cd proof/resp && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@
proof/envoy/node_modules/@grpc/grpc-js: proof/envoy/package-lock.json
	cd proof/envoy && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@
proof/service/node_modules/typescript: proof/service/package-lock.json
	cd proof/service && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@
proof/observe/node_modules/typescript: proof/observe/package-lock.json
	cd proof/observe && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@

build:
	@for m in $(MODULES); do (cd $$m && go build -o /dev/null ./...); done

vet:
	@for m in $(MODULES); do (cd $$m && go vet ./...) || { echo "FAILED: go vet of $$m"; exit 1; }; done
	@wrong=$$(gofmt -l .); [ -z "$$wrong" ] || { echo "FAILED: gofmt would change:"; echo "$$wrong"; exit 1; }

lint: vet
	@for m in $(MODULES); do \
		echo "== $$m"; \
		(cd $$m && go run $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./... && go mod tidy -diff); \
	done
	@before=$$(sha256sum go.work.sum); GOWORK= go list -m all >/dev/null; \
	[ "$$before" = "$$(sha256sum go.work.sum)" ] || { echo "go.work.sum lacked lines, which are there now: commit it"; exit 1; }

tidy:
	@for m in $(MODULES); do (cd $$m && go mod tidy); done
	@GOWORK= go list -m all >/dev/null # writes what go.work.sum lacks, as any command in the workspace would

# The seed of the long run: drawn once, unless SEED says which.
ifndef SEED
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif

# How long the long run is. CHECKS: of each property, about 30 steps each, Concurrency beside its model among them. WALKS: of 60 steps beside
# the model, for each other limit, All and holder. Each limit then has more than a million steps. FAULTS: for each row of the tables of faults
# of Redis and of leases, which are printed. OUTAGES: the same for the table of what outages take.
# ROUNDS: of threads that reserve, settle and change the limit, for each limit and holder. SEQUENCES: of requests played to nginx and to the gateway, for each directive. REPEATS: of tests
# that once failed now and then. FUZZTIME: for each fuzz target. GUARD: of attacks on the gateway by connections that are cut, slow or malformed, and of requests that an upstream reads in another way.
CHECKS    ?= 100000
WALKS     ?= 20000
FLEETS    ?= 100
FAULTS    ?= 60s
OUTAGES   ?= 25s
ROUNDS    ?= 2000
SEQUENCES ?= 1000
REPEATS   ?= 200
FUZZTIME  ?= 2m
GUARD     ?= 1h

# Each line is a directory and the arguments of go test there.
define LONG
.      ./weirtest -run Conform -walks $(WALKS)
.      ./sim -v -run LargeLog -lines 10000000
.      ./failover -run BoundOfShares -failover.schedules 1000
.      . -run UnchangedPart|AnotherClock -count $(REPEATS)
.      ./lease -race -run EverythingAtOnce -lease.calls 30000
proof  . -rapid.checks=$(CHECKS)
proof  . -v -run Fleets -fleets $(FLEETS)
proof  . -run Threads -threads.rounds $(ROUNDS)
proof  ./redis -v -run Faults -faults=$(FAULTS)
proof  ./redis -v -run Leases -leases=$(FAULTS)
proof  ./redis -v -run StayFlat -flat=$(OUTAGES)
proof  ./redis -run Conform|Promises|Outstanding|Num -walks $(WALKS)
proof  ./redis -v -run EstimatesOfAFleet -costs=20m
proof  ./redis -v -run CostsOfNodes -cost-nodes=10s
proof  ./redis -run UnchangedPart -count $(REPEATS)
proof  ./redis -run GroupOfAnything -rapid.checks=$(WALKS)
proof  ./postgres -v -run Failover -failover 5000
proof  ./postgres -v -run TestOutages -outages=$(FAULTS)
proof  ./postgres -v -run TestBloat -updates 1000000
proof  ./kv -v -run TestLeader|KilledProcesses -kills 5000
proof  ./nginx -v -sequences $(SEQUENCES) -in-flight 250
proof  ./room -run Queue|Model -rapid.checks=$(WALKS)
proof  ./fleet -v -run RollingDeploy -rolling=$(FAULTS)
proof  ./edge -v -run NothingReachesUncounted -guard $(GUARD)
proof  ./edge -v -run NoVariantReachesUncounted -guard $(GUARD)
proof  ./edge -v -run H2spec|WebSocketCorpus|Trickling -guard $(GUARD)
proof  ./edge -v -run TestDesync -guard $(GUARD)
proof  ./observe -run Attacker -attackers 1000000
proof  ./caddy -caddy.race
proof  ./resp -run Connections -connections 10000
proof  ./service -run ManyConnections -connections 10000
proof/envoy . -run ManyConnections -connections 10000
proof  ./fleet -run TestAllOrNothing -count $(REPEATS)
proof  ./transport -v -run HiddenLimits|LearnedLimits|SharedFields -compare -virtual 10m
proof  ./transport -v -run Processes -compare -measured $(FAULTS)
endef
export LONG

long: needs
	@echo "WEIR_SEED=$(SEED)"; export WEIR_SEED=$(SEED); failed=""; \
	while read -r dir args; do \
		echo "== cd $$dir && WEIR_SEED=$(SEED) GOWORK=off go test -timeout 0 $$args"; \
		(set -f; cd $$dir && go test -count=1 -timeout 0 $$args) </dev/null || \
			failed="$$failed"$$'\n'"  (cd $$dir && WEIR_SEED=$(SEED) GOWORK=off go test -count=1 -timeout 0 $$(printf '%q ' $$args))"; \
	done <<<"$$LONG"; \
	$(MAKE) --no-print-directory fuzz || failed="$$failed"$$'\n'"  make fuzz   # the input that failed is now in testdata/fuzz, and part of make test"; \
	[ -z "$$failed" ] || { echo "FAILED. Each of these runs again what failed, with the same seed:$$failed"; exit 1; }

# fuzz runs each fuzz target of each module for FUZZTIME.
fuzz:
	@for m in $(MODULES); do (cd $$m; \
		for p in $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...); do \
			for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$p/*_test.go | cut -d' ' -f2); do \
				echo "== $$f in $$p"; (cd $$p && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) .); \
			done; \
		done); \
	done

bench: needs
	cd bench && go run .

# report measures all sections RUNS times and writes bench/REPORT.md with its plots. ROUNDS: of each run.
RUNS   ?= 3
ROUNDS ?= 15
report: needs
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; cd bench; \
	for run in $$(seq $(RUNS)); do go run . -rounds $(ROUNDS) -json "$$tmp/$$run.json" $(SECTIONS); done; \
	rm -rf plots; go run . -report . "$$tmp"/*.json
