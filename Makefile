# afstream: everything a developer runs. `make check` is what must hold before a change lands.

GO ?= go
FUZZTIME ?= 10s
BENCHTIME ?= 1x
BENCHCOUNT ?= 10
BENCHINPUT ?=
NATSTIME ?= 10s
E2E ?=
SOAK ?= 10m
UNPRIVILEGED = ^Test(BadgerNeedsAWritableDirectory|UnreadableFile)$$

.PHONY: run test check lint vet fmt unprivileged race sim e2e fuzz bench bench-algorithms bench-nats bench-cluster soak data help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

run: ## find the heavy hitters of the shipped packet trace
	$(GO) run ./cmd/afstream run heavy-hitter

test: ## the tests, as a user runs them
	$(GO) test ./...

check: fmt vet lint unprivileged race sim e2e fuzz ## all that must hold: format, vet, staticcheck, tests under -race, simulation, real processes, fuzz smoke

fmt: ## fail if gofmt would change a file
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

vet: ## go vet, with and without the invariant checks and the tests of real processes
	$(GO) vet ./...
	$(GO) vet -tags invariants,e2e ./...

lint: ## staticcheck, of the tests of real processes and those of make race alone, too
	$(GO) tool staticcheck -tags invariants,e2e ./...

unprivileged: ## the tests of what a user may not read or write, which skip themselves for root
	@if [ "$$(id -u)" != 0 ]; then \
		$(GO) test -count 1 -run '$(UNPRIVILEGED)' ./backup ./connector; \
	else \
		set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; chmod 755 "$$dir"; \
		$(GO) test -c -o "$$dir/" ./backup ./connector; \
		for t in backup connector; do \
			out=$$(cd "$$dir" && setpriv --reuid=65534 --regid=65534 --clear-groups "./$$t.test" -test.v -test.run '$(UNPRIVILEGED)') || { echo "$$out"; exit 1; }; \
			echo "$$out" | grep -q '^--- PASS' || { echo "$$out"; echo "$$t: nothing was tested as another user"; exit 1; }; \
		done; echo "ok  	what another user may not read or write"; \
	fi

race: ## the tests with the race detector, every invariant checked as the jobs run, and more cases and seeds than in make test
	$(GO) test -race -tags invariants -timeout 20m ./...
	$(GO) test -race -tags e2e -run '^Test(Process|Proxy|History|Reigns|Flat)$$' ./internal/chaos ./internal/e2e ./internal/soak

sim: ## the protocol simulation, 20,000 seeds, those of backup servers and controllers, more random topologies, and clusters in fake time
	$(GO) test ./threshold -run Simulation -sim.runs=20000
	$(GO) test ./backup/remote -run Simulation -sim.runs=3000
	$(GO) test ./backup/copies -run Simulation -sim.runs=200
	$(GO) test ./controller/machine -run Simulation -sim.runs=1000
	$(GO) test ./controller/leader -run Histories -histories 6
	$(GO) test -tags invariants ./controller -run Properties -rapid.checks=400
	$(GO) test -tags invariants ./internal/clustersim -run Simulation -sim.runs=200

e2e: ## clusters of real processes that are killed, stopped and cut off; the seed is printed, E2E="-e2e.seed N" takes one
	$(GO) test -tags e2e ./internal/chaos -count 1 -timeout 5m
	$(GO) test -tags e2e ./internal/e2e -count 1 -timeout 20m $(E2E)

fuzz: ## every fuzz target for FUZZTIME, two at a time
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -tags invariants -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do echo "$$pkg $$target"; done; \
	done | xargs -P 2 -L 1 sh -c 'echo "fuzz $$0 $$1"; \
		$(GO) test -tags invariants -run "^$$" -fuzz "^$$1\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel 1 $$0 || exit 255'

bench: ## the figures of docs/benchmarks.md, summed up by benchstat
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -count $(BENCHCOUNT) ./controller | tee bench.out
	$(GO) test -run '^$$' -bench . -benchtime 200ms -count 3 ./ringbuf ./connector ./algorithms/... ./state ./backup ./backup/remote ./threshold | tee -a bench.out
	$(GO) tool benchstat bench.out

bench-algorithms: ## wordcount, grep, join and logistic regression against the same work by hand, in BENCHCOUNT rounds
	$(GO) test -run '^$$' -bench Jobs -benchtime $(BENCHCOUNT)x -timeout 60m ./job $(BENCHINPUT)

bench-nats: ## items per second and latency between two processes over NATS on loopback
	$(GO) test ./transport/link -run TwoProcesses -v -count 1 -link.for $(NATSTIME)

bench-cluster: ## how soon a cluster notices that a node or controller was killed, and goes on; memory of idle processes
	$(GO) test -tags e2e ./internal/soak -run Figures -figures -v -count 1 -timeout 30m

soak: ## a cluster of real processes under jobs and kills for SOAK: nothing may grow
	$(GO) test -tags e2e ./internal/soak -run Soak -soak $(SOAK) -v -count 1 -timeout 0

data: ## fetch the larger real inputs into .data/
	sh data/fetch.sh .data
