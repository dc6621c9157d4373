# nodelet: build, demonstration and tests. `make help` lists the targets.

SHELL      := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN        := $(CURDIR)/bin
TOOLS      := $(BIN)/tools
DEMO_DIR   ?= /var/tmp/nodelet-demo
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Pinned tools. They are built from modules and never enter go.mod.
GOLANGCI_VERSION   := v2.15.0
DEADCODE_VERSION   := v0.52.0
GOTESTSUM_VERSION  := v1.13.0
CONTAINERD_VERSION := v2.4.2
CONTAINERD_TAGS    := no_btrfs,no_zfs,no_devmapper,no_aufs
CONTAINERD_DIR     := $(BIN)/containerd-$(CONTAINERD_VERSION:v%=%)

# What the demonstration and the tests need of Debian.
PACKAGES := containerd runc containernetworking-plugins busybox-static iptables iproute2 systemd groff-base

# Where `make install` puts things, below DESTDIR.
DESTDIR ?=
PREFIX  ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERS ?= $(PREFIX)/lib/sysusers.d/nodelet.conf
ETC     := /etc/nodelet
STATE   := /var/lib/nodelet
BASH_COMPLETION := $(PREFIX)/share/bash-completion/completions/nodelet
ZSH_COMPLETION  := $(PREFIX)/share/zsh/site-functions/_nodelet
FISH_COMPLETION := $(PREFIX)/share/fish/vendor_completions.d/nodelet.fish
# A package that is made below DESTDIR tells systemd when it is unpacked.
HAS_SYSTEMD = [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]

PKG     ?= ./...
RUN     ?= .
N       ?= 200
SEED    ?= 0
FUZZTIME ?= 30s

## First steps

demo: deps build ## start a private containerd and nodelet with some pods, and show them
	go run ./internal/rig/demo up $(DEMO_DIR) $(BIN)/nodelet $(CURDIR)/testdata/demo

demo-down: build ## remove every trace of the demonstration
	go run ./internal/rig/demo down $(DEMO_DIR) $(BIN)/nodelet $(CURDIR)/testdata/demo

test: deps tools build test-unit test-real ## run every test, real containerd included

build: ## build the programs into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN)/ ./cmd/...

docs: build ## write the manual pages and the example configuration into bin/docs
	@rm -rf $(BIN)/docs
	go run ./packaging/mkdocs $(BIN)/nodelet ./internal/config $(BIN)/docs

## Installation

install: docs ## install the program, its unit, configuration, manual and completions
	install -D -m 0755 $(BIN)/nodelet $(DESTDIR)$(PREFIX)/bin/nodelet
	install -d -m 0755 $(DESTDIR)$(UNITDIR)
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' packaging/systemd/nodelet.service > $(BIN)/docs/nodelet.service
	install -m 0644 $(BIN)/docs/nodelet.service $(DESTDIR)$(UNITDIR)/nodelet.service
	install -D -m 0644 packaging/systemd/nodelet.sysusers $(DESTDIR)$(SYSUSERS)
	install -d -m 0755 $(DESTDIR)$(ETC) $(DESTDIR)$(ETC)/config.d
	install -d -m 0700 $(DESTDIR)$(ETC)/manifests $(DESTDIR)$(STATE)
	[ -e $(DESTDIR)$(ETC)/config.yaml ] || install -m 0644 $(BIN)/docs/config.yaml $(DESTDIR)$(ETC)/config.yaml
	for n in 5 8; do install -d -m 0755 $(DESTDIR)$(PREFIX)/share/man/man$$n; \
		install -m 0644 $(BIN)/docs/man/man$$n/* $(DESTDIR)$(PREFIX)/share/man/man$$n/; done
	$(BIN)/nodelet completion bash > $(BIN)/docs/completion.bash
	$(BIN)/nodelet completion zsh > $(BIN)/docs/completion.zsh
	$(BIN)/nodelet completion fish > $(BIN)/docs/completion.fish
	install -D -m 0644 $(BIN)/docs/completion.bash $(DESTDIR)$(BASH_COMPLETION)
	install -D -m 0644 $(BIN)/docs/completion.zsh $(DESTDIR)$(ZSH_COMPLETION)
	install -D -m 0644 $(BIN)/docs/completion.fish $(DESTDIR)$(FISH_COMPLETION)
	if $(HAS_SYSTEMD); then systemd-sysusers $(SYSUSERS); systemctl daemon-reload; fi
	@echo "nodelet is installed. Next: systemctl enable --now nodelet"

uninstall: ## remove what install put there, but for configuration and state
	if $(HAS_SYSTEMD); then systemctl disable --now nodelet.service || true; fi
	rm -f $(DESTDIR)$(PREFIX)/bin/nodelet $(DESTDIR)$(UNITDIR)/nodelet.service $(DESTDIR)$(SYSUSERS)
	rm -f $(DESTDIR)$(BASH_COMPLETION) $(DESTDIR)$(ZSH_COMPLETION) $(DESTDIR)$(FISH_COMPLETION)
	rm -f $(DESTDIR)$(PREFIX)/share/man/man5/nodelet.yaml.5 $(DESTDIR)$(PREFIX)/share/man/man8/nodelet.8 $(DESTDIR)$(PREFIX)/share/man/man8/nodelet-*.8
	if $(HAS_SYSTEMD); then systemctl daemon-reload; fi
	@echo "nodelet is removed. Pods run on. Left in place: $(DESTDIR)$(ETC) and $(DESTDIR)$(STATE)"

## Checks

check: lint arch deadcode ## format, vet, lint, import table and dead code

fmt: $(TOOLS)/golangci-lint ## format the code
	$(TOOLS)/golangci-lint fmt ./...

vet: ## run go vet
	go vet ./...

lint: $(TOOLS)/golangci-lint vet ## check format and lint rules
	$(TOOLS)/golangci-lint run ./...

arch: ## hold the imports against the table in internal/README.md
	go test -count=1 -run 'TestImportTable' ./internal/arch

deadcode: $(TOOLS)/deadcode ## find code that nothing reaches
	@found="$$($(TOOLS)/deadcode -test ./...)"; if [ -n "$$found" ]; then echo "$$found"; exit 1; fi

## Tests, tier by tier

test-unit: $(TOOLS)/gotestsum ## the pure core, the simulator, the shell in bubbles, gRPC against fakecri
	go test -count=1 -timeout 10m -run '^TestWeekOfRestarts$$' ./internal/agent # a whole week; with -race it is a day
	$(TOOLS)/gotestsum --format pkgname --hide-summary=skipped -- -race -shuffle=on -timeout 15m -skip '^TestReal' $(PKG)

test-real: deps containerd $(TOOLS)/gotestsum build ## conformance and whole-agent scenarios on real containerd, as root
	$(TOOLS)/gotestsum --format pkgname --hide-summary=skipped -- -count=1 -p 1 -timeout 25m -run '^TestReal' $(PKG)

sim: ## run the simulator: N seeds starting at SEED
	go test -count=1 -timeout 60m ./internal/sim -run '^TestSimulator$$' -sim.n=$(N) -sim.seed=$(SEED)

kill: deps containerd ## kill the agent at any time, N runs on each containerd
	go test -count=1 -timeout 80m ./cmd/nodelet -run '^TestRealKillAtAnyTime$$' -kill.n=$(N)

fuzz: ## fuzz the parsers and the planner, FUZZTIME each
	@for target in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs grep -HoE '^func Fuzz[A-Za-z0-9]+' | sed -E 's|/[^/]*:func |:|'); do \
		dir="$${target%%:*}"; name="$${target##*:}"; echo "== $$dir $$name"; \
		go test "$$dir" -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME); \
	done

bench: deps containerd build ## measure against the bare CRI calls, in one run; on a quiet machine
	go run ./internal/rig/bench -nodelet $(BIN)/nodelet

golden: ## rewrite the transcripts
	go test ./internal/plan -count=1 -args -rewrite
	go test ./runtime/convert -count=1 -rewrite

## Tools

deps: ## install the Debian packages that are missing
	@missing=""; for p in $(PACKAGES); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "==> installing$$missing"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; fi

tools: $(TOOLS)/golangci-lint $(TOOLS)/deadcode $(TOOLS)/gotestsum containerd ## build the pinned tools

containerd: $(CONTAINERD_DIR)/ctr ## build the newer containerd that the tests use beside Debian's

$(CONTAINERD_DIR)/ctr:
	@for c in containerd containerd-shim-runc-v2 ctr; do echo "==> building $$c $(CONTAINERD_VERSION)"; \
		CGO_ENABLED=0 GOBIN=$(CONTAINERD_DIR) go install -tags $(CONTAINERD_TAGS) github.com/containerd/containerd/v2/cmd/$$c@$(CONTAINERD_VERSION); done

$(TOOLS)/golangci-lint:
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(TOOLS)/deadcode:
	GOBIN=$(TOOLS) go install golang.org/x/tools/cmd/deadcode@$(DEADCODE_VERSION)

$(TOOLS)/gotestsum:
	GOBIN=$(TOOLS) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^## / {sub(/^## /, ""); printf "\n%s\n", $$0} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo demo-down test build docs install uninstall check fmt vet lint arch deadcode test-unit test-real sim kill bench fuzz golden deps tools containerd help
