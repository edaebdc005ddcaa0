# All tasks of this tree. `make` alone prints the list.

CARGO ?= cargo
export PREFIX DESTDIR SYSCONFDIR BINARY
TARGET := $(or $(CARGO_TARGET_DIR),target)
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help demo build optimized install uninstall static package package-check release nginx-module nginx-module-test nginx-module-package test unit e2e faults simulation lab soak day sanitize lint audit bench bench-algorithms bench-simulator fuzz advice docs site test-tools lab-tools tools clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Three servers and a balancer on 127.0.0.1:8080, live; Ctrl-C ends it (ARGS="--algorithm least_conn", ARGS=--tls)
	$(CARGO) build --profile demo --locked -p balanza --no-default-features
	@$(TARGET)/demo/balanza demo $(value ARGS)

build: ## The program: target/release/balanza
	$(CARGO) build --release --locked -p balanza

optimized: ## The program for production, with profile-guided optimization: target/optimized/balanza (10 minutes)
	TARGET="$(TARGET)" CARGO="$(CARGO)" scripts/build-optimized.sh

install: ## The program, manual pages, completions, systemd unit, default configuration (PREFIX=/usr/local DESTDIR= BINARY=)
	@scripts/install.sh install

uninstall: ## Remove what `make install` installed, but no changed configuration
	@scripts/install.sh uninstall

static: ## The program without libraries, for any Linux: target/release-build/static/balanza (docs/install.md)
	@scripts/build-release.sh static

package: ## A Debian package of the balancer: target/release-files
	@scripts/package.sh

package-check: ## Build it and try it in Debian 12 and 13: install, reload, upgrade under load, purge (root; minutes)
	@scripts/check-package.sh $(ARGS)

release: ## Package, static program, container image, module for NGINX, checksums, bill of materials: target/release-files
	@scripts/release.sh

nginx-module: ## The algorithms as an NGINX module: target/nginx-module (NGINX_SOURCE=/src/nginx for another than the installed)
	@scripts/build-nginx-module.sh

nginx-module-package: nginx-module ## A Debian package of it, for the installed NGINX
	@scripts/package-nginx-module.sh

test: ## Install what the tests need and run every suite; the last lines say what ran, failed and was skipped
	@CARGO="$(CARGO)" scripts/test.sh

unit: ## The crates' own tests
	@CARGO="$(CARGO)" scripts/test.sh unit $(ARGS)

e2e: ## The program from outside: clients, servers, failures (ARGS="-k websocket")
	@CARGO="$(CARGO)" scripts/test.sh e2e $(ARGS)

faults: ## What happens when the machine, the disk or a process fails (ARGS="-k disk")
	@CARGO="$(CARGO)" scripts/test.sh faults $(ARGS)

simulation: ## balanza simulate beside another simulator, and its sweeps on a Dask cluster
	@CARGO="$(CARGO)" scripts/test.sh simulation $(ARGS)

nginx-module-test: ## The module inside a real NGINX (ARGS="-k reload"; NGINX=/path/to/nginx)
	@CARGO="$(CARGO)" scripts/test.sh nginx-module $(ARGS)

lab: build ## An experiment on real processes (PLAN=unicamp-2021 ARGS=--quick; docs/lab.md)
	$(TARGET)/release/balanza lab $(if $(PLAN),run $(PLAN),list) $(ARGS)

soak: build ## A million requests, counted at client, balancer and servers
	BALANZA="$(abspath $(TARGET))/release/balanza" SOAK_REQUESTS=1000000 tests/e2e/run.sh -m soak --timeout=1200

day: build ## A day of operations in an hour: failures, deploys, an attack; needs root (ARGS="--minutes 10 --out DIR")
	BALANZA="$(abspath $(TARGET))/release/balanza" $(or $(VENV),$(TARGET)/venv)/bin/python tests/operations/day.py $(ARGS)

sanitize: ## The end-to-end tests under AddressSanitizer, for the few modules with unsafe code; needs nightly
	RUSTFLAGS=-Zsanitizer=address $(CARGO) +nightly build --locked -p balanza \
		--target x86_64-unknown-linux-gnu --target-dir $(TARGET)/sanitize
	ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 BALANZA="$(abspath $(TARGET))/sanitize/x86_64-unknown-linux-gnu/debug/balanza" \
		tests/e2e/run.sh -m "not soak and not load and not address_space" --deselect test_limits.py::test_idle_connections_are_cheap \
		--deselect test_regressions_timers.py::test_limited_downloads_cost_no_time

lint: ## Format, lints, and the dependencies' licences where cargo-deny is installed
	$(CARGO) fmt --all --check
	$(CARGO) fmt --all --check --manifest-path benches/Cargo.toml
	$(CARGO) fmt --all --check --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p balanza --no-default-features --locked -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --locked check bans licenses sources; \
	else echo "cargo-deny is not installed (make tools): licences not checked"; fi

audit: ## Known vulnerabilities of the dependencies; needs `make tools` and the network
	$(CARGO) deny --locked check advisories

bench: optimized ## The cost of a request beside NGINX, HAProxy and a bare relay (docs/performance.md)
	benches/run.py $(ARGS)

bench-algorithms: ## The cost of a choice, for each algorithm and number of servers (ARGS=--docs writes it to docs)
	$(CARGO) bench --locked -p balanza-balancing --bench cost -- $(ARGS)

bench-simulator: ## Events a second of the simulator, 100 to 1,000,000 servers, and its memory
	$(CARGO) bench --locked -p balanza-simulator --bench speed -- $(ARGS)

fuzz: ## A minute for each fuzz target (FUZZ_SECONDS=60); needs nightly and `make tools`
	@for target in $$($(CARGO) +nightly fuzz list); do \
		mkdir -p fuzz/corpus-run/$$target; \
		$(CARGO) +nightly fuzz run $$target fuzz/corpus-run/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit 1; \
	done

advice: ## Simulate every algorithm in every situation, for `balanza algorithms --advise` and docs (ARGS="prequal" for some)
	$(CARGO) run --release --locked -p balanza-simulator --example advice -- $(ARGS)
	$(MAKE) docs

docs: ## Write the generated parts of docs (directives, algorithms, pictures of scenarios), the manual pages and the completions
	BALANZA_UPDATE_DOCS=1 $(CARGO) test --locked -q -p balanza-config --test documents
	BALANZA_UPDATE_DOCS=1 $(CARGO) test --locked -q -p balanza is_documented
	BALANZA_UPDATE_DOCS=1 $(CARGO) test --locked -q -p balanza-simulator --test pictures

site: ## README and docs as a site with search: target/site/index.html; installs mdbook if it is missing
	@CARGO="$(CARGO)" scripts/build_site.py

test-tools: ## Debian's packages that the tests and the benchmark need
	@scripts/install-test-tools.sh

lab-tools: ## What the lab's experiments use: balancers, load generators, Locust
	@scripts/install-lab-tools.sh

tools: ## cargo-deny and cargo-fuzz
	$(CARGO) install --locked cargo-deny cargo-fuzz

clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf benches/target fuzz/target fuzz/corpus-run
