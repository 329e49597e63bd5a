# Margay. `make` lists the targets; `make demo` and `make test` are all a newcomer needs.
SHELL := /bin/bash
GO ?= go
export CGO_ENABLED = 0

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## bin/margay, one static binary
	$(GO) build -trimpath -o bin/margay ./cmd/agent

demo: build packages ## real policy on real pods in network namespaces; needs root, no cluster
	./bin/margay demo

test: packages ## everything, privileged tests included when run as root
	$(GO) test ./...

test-race: ## the same under the race detector (needs gcc)
	CGO_ENABLED=1 $(GO) test -race ./...

bench: build ## paired benchmarks into bench/results/; needs root
	$(GO) run ./bench/run

packages: # the commands that pods, Services and dumps in demo and tests need
	@scripts/packages iptables=iptables ip=iproute2 bpftool=bpftool

generate: ## compile the BPF programs (clang 14, libbpf-dev) and their Go types
	@scripts/packages clang-14=clang-14 llvm-strip-14=llvm-14 /usr/include/bpf/bpf_helpers.h=libbpf-dev /usr/include/linux/bpf.h=linux-libc-dev
	$(GO) generate ./bpf

verify: generate ## generated files and formatting are as committed
	test -z "$$(gofmt -l .)"
	git diff --exit-code -- bpf go.mod go.sum

lint: ## vet and staticcheck
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

fmt: ## format the Go code
	gofmt -w .

clean: ## remove what was built
	rm -rf bin

.PHONY: help build demo packages test test-race bench generate verify lint fmt clean
.DEFAULT_GOAL := help
