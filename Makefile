# Margay. `make` lists the targets; `make demo` and `make test` are all a newcomer needs.
SHELL := /bin/bash
GO ?= go
export CGO_ENABLED = 0

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## bin/margay, one static binary
	$(GO) build -ldflags "$$(scripts/stamp)" -o bin/margay ./cmd/margay

demo: build packages ## real policy on real pods in network namespaces; needs root, no cluster
	./bin/margay demo

test: build packages ## everything, privileged tests included when run as root; three jobs side by side
	@MARGAY_E2E_BINARY=$(CURDIR)/bin/margay $(MAKE) --no-print-directory -k -j3 --output-sync=target ONCE=1 \
		test-agents test-attacks test-dataplanes test-others test-legacy-agents test-legacy-attacks test-nft-agents test-nft-attacks

# The jobs of `make test`, each of one process of tests at a time. Tests of agents wait most of the time, so that two CPUs are enough for
# three jobs; the long ones come first.
test-agents: packages
	$(GO) test -timeout 30m ./test/e2e

test-attacks: packages
	$(GO) test -timeout 30m ./test/e2e/hostile

test-dataplanes: packages
	$(GO) test -timeout 30m -p 1 $$($(GO) list ./... | grep -E '$(DATAPLANES)')

test-others: packages
	$(GO) test -timeout 30m -p 1 $$($(GO) list ./... | grep -vE '/test/e2e(/hostile)?$$|$(DATAPLANES)')

DATAPLANES = /pkg/dataplane/|/pkg/agent$$|/cmd/agent/cli$$

test-iptables: test-legacy-agents test-legacy-attacks test-nft-agents test-nft-attacks ## tests of whole agents again, with the iptables dataplane: all with legacy, a part with nft

# With ONCE, legacy leaves out what nft plays: the chains of both have one renderer. Of the corpus each plays other cases.
test-legacy-agents: packages
	MARGAY_DATAPLANE=iptables MARGAY_IPTABLES_BACKEND=legacy MARGAY_E2E_KILLS=40 MARGAY_E2E_CORPUS_EACH=3 \
		$(GO) test -timeout 30m ./test/e2e -run '$(AGENTS)|TestAgent|Terminating|Finished|Reused|Recreated|Churn|Path|SCTPPorts|Invalid|ALarge|FurtherSource|Corpus|DatastoreGone|BadInput|Transfers|Rearranged|OnePort|CleanupLoses|ABadWire|APrefixOf|AWrongPrefix' $(if $(ONCE),-skip '$(AGENTS)')

test-legacy-attacks: packages
	MARGAY_DATAPLANE=iptables MARGAY_IPTABLES_BACKEND=legacy MARGAY_E2E_FUZZ_SECONDS=6 MARGAY_E2E_FUZZ_SEED=1 $(GO) test -timeout 30m ./test/e2e/hostile -run '$(HOSTILE)' $(if $(ONCE),-skip '$(NFT_HOSTILE)')

test-nft-agents: packages
	MARGAY_DATAPLANE=iptables MARGAY_IPTABLES_BACKEND=nft MARGAY_E2E_CORPUS_EACH=9 MARGAY_E2E_CORPUS_FROM=1 $(GO) test -timeout 30m ./test/e2e -run '$(AGENTS)|Corpus'

test-nft-attacks: packages
	MARGAY_DATAPLANE=iptables MARGAY_IPTABLES_BACKEND=nft MARGAY_E2E_FUZZ_SECONDS=6 MARGAY_E2E_FUZZ_SEED=1 $(GO) test -timeout 30m ./test/e2e/hostile -run '$(NFT_HOSTILE)'

AGENTS = TestNetworkPolicy|TestEgress|TestUnknown|TestSpoofed|TestFragments|TestAddress|TestServices|TestRevoked|TestKept|TestReplies|TestICMP|TestAgentKilledAndRestarted|TestPolicyChanges|TestMonitors|TestAStaged
HOSTILE = TwoPodsCannot|ABusy|AHelper|AnError|EchoRequests|Redirects|ForgedErrors|AForeignMark|AServiceAddress|AnAddress|ALostClaim|Fragments|PodsSend|ConnectionsToTheNode|ManyNumbers|ATunnel|ANewPod|Disguises|ErrorsAbout|ANode|TheNode|AnExternal|ClosedEgress|Annotations|Manifests|AnAnswer|AnswersTo|PoliciesOfOneTenant|ErrorsOfTheNode|HalfADatagram|NodesFollow|AnAuthentication|Listed|Fuzzing|TheRoute|AnotherBackend|KeptFlows|ARevoked|APacketThatIsNotTranslated|ResetsCarry|AFlowByAnUnknown|AStormOf|ClaimsInALoop

# Attacks whose outcome depends on what the chains say: `make test-nft-attacks NFT_HOSTILE='$(HOSTILE)'` plays the others, too, in 6 to 10 minutes.
NFT_HOSTILE = ATunnel|ANodeThat|TheNodeTakes|TheNodeDoesNotOpenWhat|ClosedEgress|ForgedErrors|Fragments|ARevokedConnectionToAService|AForeignMark|ANewPod|ErrorsAbout|AServiceAddress|AnswersTo|Disguises|PodsSendNothing

test-race: ## the same under the race detector (needs gcc)
	CGO_ENABLED=1 $(GO) test -race ./...

e2e: build packages e2e-binaries ## the agent on a real cluster: etcd, Kubernetes and kube-proxy, nodes in namespaces; needs root (RUN=TestName)
ifdef RUN
	@scripts/e2e -run '$(RUN)' -v
else
	@$(MAKE) --no-print-directory -k -j2 --output-sync=target e2e-agents e2e-corpus e2e-iptables && \
		$(MAKE) --no-print-directory -k e2e-timed e2e-datastore
endif

# The jobs of `make e2e`, each with clusters of its own, one at a time.
e2e-agents:
	scripts/e2e -skip '^(TestCorpus|$(TIMED))$$' . ./process

# These judge how long something took, so nothing runs beside them.
e2e-timed:
	scripts/e2e -run '^($(TIMED))$$' .

TIMED = TestPodsAreEnforcedSoonAfterTheyAppear|TestAPIServerAway|TestEtcdAway

e2e-corpus:
	scripts/e2e -run '^TestCorpus$$' .

e2e-datastore:
	scripts/e2e ./datastore

e2e-iptables:
	MARGAY_DATAPLANE=iptables scripts/e2e -run 'TestPolicyTakesEffect|TestHosts|TestClusterNetworkPolicy' .

e2e-binaries: ## etcd and Kubernetes for e2e, built once per machine; 6 to 9 minutes cold
	@scripts/e2e-binaries

kubelet: build packages ## the DaemonSet on a node with a real kubelet, containerd and runc; 4 minutes, cold 12; needs root
	@scripts/packages runc=runc pkill=procps
	@MARGAY_REQUIRE_PRIVILEGED=1 scripts/kubelet -v -skip TestSuitesOfOthers

conformance: build packages ## the suites of Kubernetes and SIG Network for NetworkPolicy and ClusterNetworkPolicy, on two such nodes; an hour; needs root
	@scripts/packages runc=runc pkill=procps
	@MARGAY_REQUIRE_PRIVILEGED=1 scripts/kubelet --suites -v -run TestSuitesOfOthers$(if $(RUN),/$(RUN))

# The packages of test/kubelet without the suites of others, which are large: `make conformance` looks at those itself.
KUBELET = . ./cni ./pod ./sctp

kernels: ## Linux 6.1, 6.12, 6.12 on arm64 and the newest of Debian under QEMU; needs root on Debian (GUEST=name)
	@scripts/packages $(QEMU)
	$(GO) run ./test/kernels $(if $(GUEST),-only $(GUEST))

kernels-short: # what of it CI runs; with EXCUSE=file what cannot be had (emulators, packages) is written there and is no failure
	@scripts/packages $(QEMU) $(if $(EXCUSE),|| true)
	$(GO) run ./test/kernels -short -quiet -at-once 2 $(if $(EXCUSE),-excuse '$(EXCUSE)')

QEMU = qemu-system-x86_64=qemu-system-x86 qemu-system-aarch64=qemu-system-arm depmod=kmod xz=xz-utils \
	/usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring

bench: build packages ## benchmarks into bench/results/ and docs/benchmarks.md; 15 minutes, needs root
	$(GO) run ./bench/run
	$(GO) run ./bench/scale

bench-cluster: build packages ## pods coming on a real cluster, up to 100,000 others, into bench/results/cluster.txt; 15 minutes, needs root
	@MARGAY_E2E_BENCH_OUT=$(CURDIR)/bench/results/cluster.txt scripts/e2e -run '^$$' -bench BenchmarkCluster -benchtime 1x -v -timeout=60m

bench-tenant: packages ## 100 honest pods beside a tenant at every limit, into bench/results/tenant.txt; needs root, a quiet machine
	@MARGAY_REQUIRE_PRIVILEGED=1 MARGAY_E2E_TENANT_OUT=$(CURDIR)/bench/results/tenant.txt $(GO) test ./test/e2e/hostile -run TestTenantAtEveryLimitDisturbsNobody -count=1 -v -timeout 30m

packages: # the commands that pods, Services and dumps in demo and tests need
	@scripts/packages iptables=iptables ip=iproute2 bpftool=bpftool ipset=ipset nft=nftables

generate: ## compile the BPF programs (clang 14, libbpf-dev) and their Go types
	@scripts/packages clang-14=clang-14 llvm-strip-14=llvm-14 /usr/include/bpf/bpf_helpers.h=libbpf-dev /usr/include/linux/bpf.h=linux-libc-dev
	$(GO) generate ./bpf

verify: generate clang-format ## generated files and formatting are as committed
	test -z "$$(gofmt -l .)"
	clang-format-14 --dry-run -Werror $(C)
	git diff --exit-code -- bpf go.mod go.sum test/e2e/cluster/go.mod test/e2e/cluster/go.sum test/kubelet/go.mod test/kubelet/go.sum

lint: ## vet and staticcheck
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) build -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	cd test/e2e/cluster && $(GO) vet ./... && ../../../bin/staticcheck ./...
	cd test/kubelet && $(GO) vet $(KUBELET) && ../../bin/staticcheck $(KUBELET)

fmt: clang-format ## format the Go and C code
	gofmt -w .
	clang-format-14 -i $(C)

clang-format: # 14, the version that Debian 12 has: others format differently
	@scripts/packages clang-format-14=clang-format-14

C = $(wildcard bpf/*.c bpf/lib/*.h)

clean: ## remove what was built
	rm -rf bin

.PHONY: help build demo packages test test-agents test-attacks test-dataplanes test-others test-iptables test-legacy-agents test-legacy-attacks test-nft-agents test-nft-attacks test-race e2e e2e-agents e2e-timed e2e-corpus e2e-datastore e2e-iptables e2e-binaries kubelet conformance kernels kernels-short bench bench-cluster bench-tenant generate verify lint fmt clang-format clean
.DEFAULT_GOAL := help
