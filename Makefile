# Everything here works from a fresh clone with Go installed.
#
#   make test    install what the tests need, then run them all, with the race detector
#   make lint    formatting, go vet, golangci-lint, go mod tidy
#   make long    the searches and fuzz targets, for much longer
#   make bench   Weir beside its peers, on a machine that is otherwise quiet

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# A directory with a go.mod is a module, and each is built and tested alone: what a workspace would hide is found.
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*' | sort))

# What the tests start: a command, and the Debian package that brings it.
NEEDS := chromium:chromium node:nodejs npm:npm nginx:nginx wrk:wrk curl:curl redis-server:redis-server redis-sentinel:redis-sentinel h2load:nghttp2-client caddy:caddy

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

TIMEOUT ?= 20m

# How much longer the long run is: checks of each property, of about 30 steps each, those of Concurrency beside its model among them; walks of
# 60 steps beside the model for each other limit, All too, and holder; and time for each fuzz target. Each limit then has more than 10^6 steps.
CHECKS   ?= 100000
WALKS    ?= 20000
FUZZTIME ?= 2m

# How long each row of the tables of faults of Redis, and of leases, lasts. They are printed.
FAULTS ?= 60s

# How many sequences of requests are played to nginx and to the gateway, for each directive.
SEQUENCES ?= 1000

.PHONY: test needs browser build vet lint tidy long fuzz bench

# -count=1: the pages that are run, and servers, are not among what the test cache looks at.
test: needs vet
	@for m in $(MODULES); do \
		echo "== $$m"; \
		(cd $$m && GOWORK=off go test -race -count=1 -timeout $(TIMEOUT) ./...); \
	done

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

# browser installs what drives the browser of proof/browser: one package without dependencies, pinned by its checksum, and none of its scripts run.
browser: proof/browser/node_modules/playwright-core
proof/browser/node_modules/playwright-core: proof/browser/package-lock.json
	cd proof/browser && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@

build:
	@for m in $(MODULES); do (cd $$m && GOWORK=off go build -o /dev/null ./...); done

vet:
	@for m in $(MODULES); do (cd $$m && GOWORK=off go vet ./...); done
	@wrong=$$(gofmt -l .); [ -z "$$wrong" ] || { echo "gofmt would change:"; echo "$$wrong"; exit 1; }

lint: vet
	@for m in $(MODULES); do \
		echo "== $$m"; \
		(cd $$m && GOWORK=off go run $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./... && GOWORK=off go mod tidy -diff); \
	done

tidy:
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy); done

long: needs
	GOWORK=off go test -timeout 0 ./weirtest -run Conform -walks $(WALKS)
	cd proof && GOWORK=off go test -timeout 0 . -rapid.checks=$(CHECKS)
	cd proof && GOWORK=off go test -timeout 0 ./redis -v -run Faults -faults=$(FAULTS)
	cd proof && GOWORK=off go test -timeout 0 ./redis -v -run Leases -leases=$(FAULTS)
	cd proof && GOWORK=off go test -timeout 0 ./nginx -v -sequences $(SEQUENCES) -in-flight 250
	cd proof && GOWORK=off go test -timeout 0 ./room -run 'Line|Model' -rapid.checks=$(WALKS)
	@$(MAKE) --no-print-directory fuzz

# fuzz runs each fuzz target of each module for FUZZTIME.
fuzz:
	@for m in $(MODULES); do (cd $$m; export GOWORK=off; \
		for p in $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...); do \
			for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$p/*_test.go | cut -d' ' -f2); do \
				echo "== $$f in $$p"; (cd $$p && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) .); \
			done; \
		done); \
	done

bench: needs
	cd bench && GOWORK=off go run .
