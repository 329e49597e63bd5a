package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// guest is one boot: a kernel and what runs on it.
type guest struct {
	name    string
	arch    string // Go's and Debian's name of it
	series  string // of Debian's cloud kernels; empty: the newest there is
	setting string // on the kernel's command line
	counted bool   // see boot.counted
	limit   time.Duration
	modules []string
	tasks   []task
}

// task is one job and what must become of it.
type task struct {
	name    string
	pkg     string   // whose tests it runs; empty: it runs command
	args    []string // of the tests
	quick   string   // the tests of the short form; empty: the same
	command []string
	agent   bool     // the tests need the agent
	env     []string // beside what all have
	long    bool     // not in the short form
	limit   time.Duration
	check   func(status int, output string) error // nil: succeeded
}

// succeeded is what most tasks are to do.
func succeeded(status int, _ string) error {
	if status != 0 {
		return fmt.Errorf("exit status %d, want 0", status)
	}
	return nil
}

// says wants an exit status, and a line that has all the texts.
func says(want int, line ...string) func(int, string) error {
	return func(status int, output string) error {
		if status != want {
			return fmt.Errorf("exit status %d, want %d", status, want)
		}
		for got := range strings.Lines(output) {
			found := true
			for _, text := range line {
				found = found && strings.Contains(got, text)
			}
			if found {
				return nil
			}
		}
		return fmt.Errorf("no line says %q", line)
	}
}

// refuses is says for a command that is to fail with one line; log lines before it do not count.
func refuses(line ...string) func(int, string) error {
	return func(status int, output string) error {
		n := 0
		for got := range strings.Lines(output) {
			if !strings.HasPrefix(got, "{") {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%d lines of output besides the log, want 1", n)
		}
		return says(2, line...)(status, output)
	}
}

// ran is succeeded for tests of which at least one must have run, and none may have been skipped.
func ran(status int, output string) error {
	if err := succeeded(status, output); err != nil {
		return err
	}
	if !strings.Contains(output, "--- PASS") {
		return errors.New("no test ran")
	}
	if strings.Contains(output, "--- SKIP") {
		return errors.New("a test was skipped")
	}
	return nil
}

var (
	runAgent = []string{"margay", "run", "--datastore", "directory", "--dir", "/tmp", "--node", "n"}

	// What a connection with a deadline should not wait for.
	packetModules = []string{"veth", "bridge", "nft_compat", "nft_chain_nat", "xt_conntrack", "nf_conntrack", "sctp", "sch_netem", "ip_vs", "ip_vs_rr"}

	// The programs and the maps in the kernel: loaded, verified, run over packets, attached. Left out are tests of so many
	// steps that they take minutes without the help of the processor.
	programTests = []task{
		{
			name: "bpf", pkg: "./bpf", args: []string{"-test.v", "-test.skip=TestEventsNobodyReadsAreCounted"},
			quick: "VerifierAccepts|TCPStates|DatagramFlows",
			limit: 20 * time.Minute, check: ran,
		},
		{
			name: "attach", pkg: "./pkg/attach", args: []string{"-test.v"},
			// The watches of interfaces and routes have deadlines by a clock that goes on while a slow guest does not.
			quick: "Attaches|Outlive|Repaired|Vanished|Others|Succe|Obstacle|EverythingOnASupported|PodSide",
			limit: 5 * time.Minute, check: ran,
		},
		{
			name: "bpfmaps", pkg: "./pkg/bpfmaps",
			args:  []string{"-test.v", "-test.skip=TestBpftoolPrintsNamedFields|TestSlotReuseNeverTouchesALiveSlot"},
			limit: 20 * time.Minute, check: ran, long: true,
		},
	}

	// What the iptables dataplane needs of a kernel that cannot run the BPF one. A guest has one CPU, on which no packet
	// meets the moment that anchors are for.
	netfilterTests = []task{
		{
			name: "ipsets", pkg: "./pkg/ipsets", args: []string{"-test.v", "-test.skip=WithoutAnchors"}, quick: "TestEntriesAre|TestErrors|TestDamage|TestWhatTheKernel",
			limit: 5 * time.Minute, check: ran,
		},
		{name: "conntrack", pkg: "./pkg/conntrack", args: []string{"-test.v"}, quick: "TestConnections|TestInserted", limit: 5 * time.Minute, check: ran},
		{name: "ruleset", pkg: "./pkg/ruleset", args: []string{"-test.v", "-test.run=TestTheKernel"}, limit: 5 * time.Minute, check: ran, long: true},
		{
			name: "iptables", pkg: "./pkg/iptables", limit: 10 * time.Minute, check: ran, long: true,
			args: []string{"-test.v", "-test.run=TestAppliesTheDifference|TestPacketsSee|TestAFlushed|TestARestored|TestTheKernelsLimit|TestOneWorld|TestBackends"},
		},
		{name: "nflog", pkg: "./pkg/nflog", args: []string{"-test.v"}, limit: 5 * time.Minute, check: ran, long: true},
		{name: "tcpreset", pkg: "./pkg/tcpreset", args: []string{"-test.v", "-test.skip=AFlood"}, limit: 5 * time.Minute, check: ran, long: true},
	}

	// Whole agents, pods and attackers where auto takes the iptables dataplane.
	fallbackTests = []task{
		{name: "demo", command: []string{"margay", "demo"}, limit: 10 * time.Minute, check: says(0, "enforces the manifests", "iptables-legacy"), long: true},
		{
			name: "demo with nft", command: []string{"margay", "demo"}, env: []string{"MARGAY_IPTABLES_BACKEND=nft"}, limit: 10 * time.Minute,
			check: says(0, "enforces the manifests", "iptables-nft"), long: true,
		},
		{
			name: "corpus", pkg: "./test/e2e", agent: true, limit: 20 * time.Minute, check: ran, long: true,
			env: []string{"MARGAY_DATAPLANE=iptables", "MARGAY_E2E_CORPUS_EACH=5"}, args: []string{"-test.v", "-test.run=TestCorpus"},
		},
		{
			name: "agents", pkg: "./test/e2e", agent: true, limit: 15 * time.Minute, check: ran, long: true,
			env: []string{"MARGAY_DATAPLANE=iptables"}, args: []string{"-test.v", "-test.run=TestRevokedFlows|TestServicesAreJudged|TestSpoofedSources|BadWire"},
		},
		{
			name: "attackers", pkg: "./test/e2e/hostile", agent: true, limit: 15 * time.Minute, check: ran, long: true,
			env: []string{"MARGAY_DATAPLANE=iptables"}, args: []string{"-test.v", "-test.run=DisguisesDoNotPass|ClosedEgress|ForgedErrors"},
		},
	}

	// A node whose administrator has turned IPv6 off: ip6tables-legacy does not work there, that of nftables does.
	ipv4Tasks = []task{
		{name: "check", command: []string{"margay", "check"}, limit: time.Minute, check: says(0, "check: all is well"), long: true},
		{name: "run", command: []string{"sh", "-c", unlimited + untilReady}, limit: 3 * time.Minute, check: succeeded, long: true},
		{
			name: "run with iptables", command: []string{"sh", "-c", "export MARGAY_DATAPLANE=iptables; " + unlimited + untilReady}, limit: 3 * time.Minute,
			check: says(0, "dataplane", "iptables-nft"), long: true,
		},
		{
			name: "run with legacy", command: append(slices.Clone(runAgent), "--dataplane", "iptables", "--iptables-backend", "legacy"), limit: time.Minute,
			check: refuses("does not work for IPv6", "ip6tables-legacy-restore"), long: true,
		},
	}

	// Whole agents, pods and attackers; real SCTP and a bad wire, which not every machine of tests has.
	nodeTests = []task{
		{name: "check", command: []string{"margay", "check"}, limit: time.Minute, check: says(0, "check: all is well"), long: true},
		{name: "demo", command: []string{"margay", "demo"}, limit: 10 * time.Minute, long: true},
		{
			name: "e2e", pkg: "./test/e2e", agent: true, limit: 15 * time.Minute, check: ran, long: true,
			args: []string{"-test.v", "-test.run=SCTPAssociations|BadWire|RevokedFlows|ServicesAreJudged|SpoofedSources"},
		},
		{
			name: "ipvs", pkg: "./test/e2e", agent: true, limit: 10 * time.Minute, check: ran, long: true,
			args: []string{"-test.v", "-test.run=IPVS"},
		},
		{
			name: "hostile", pkg: "./test/e2e/hostile", agent: true, limit: 15 * time.Minute, check: ran, long: true,
			args: []string{"-test.v", "-test.run=DisguisesDoNotPass|FragmentsCannotChange|ClosedEgress|ForgedErrors"},
		},
		{
			name: "IPVS: check", command: ipvs(1, "-m"), limit: time.Minute, long: true,
			check: says(0, "Services", "translated by IPVS (the interface kube-ipvs0 and 1 virtual service), judged on the backend"),
		},
		{
			name: "IPVS past conntrack: check", command: ipvs(0, "-m"), limit: time.Minute, long: true,
			check: says(1, "PROBLEM", "kube-ipvs0 and 1 virtual service", "set net.ipv4.vs.conntrack=1"),
		},
		{
			name: "IPVS direct routing: check", command: ipvs(1, "-g"), limit: time.Minute, long: true,
			check: says(1, "PROBLEM", "1 of the backends by direct routing"),
		},
		{
			name: "memory: too little", command: limited("96M", "agent --datastore directory --dir /run --node n"),
			limit: time.Minute, check: refuses("margay: the memory limit of 96 MiB", "is too low", "allow"), long: true,
		},
		{
			name: "memory: little", command: limited("150M", untilReady), limit: 2 * time.Minute, check: says(0, "is low"), long: true,
		},
		{
			name: "JIT off: check", command: []string{"sh", "-c", "echo 0 >/proc/sys/net/core/bpf_jit_enable && margay check"},
			limit: time.Minute, check: says(1, "BPF JIT compiler", "PROBLEM", "net.core.bpf_jit_enable=1"), long: true,
		},
		{
			name: "JIT off: run", command: runAgent, limit: time.Minute,
			check: refuses("margay: the BPF dataplane cannot run here", "the BPF JIT is off: set net.core.bpf_jit_enable=1"), long: true,
		},
	}
)

// ipvs runs margay check beside a virtual service like kube-proxy's, whose backend gets packets in the way of an option of
// ipvsadm.
func ipvs(conntrack int, forward string) []string {
	return []string{"sh", "-c", fmt.Sprintf(`ip link add kube-ipvs0 type dummy && echo %d >/proc/sys/net/ipv4/vs/conntrack &&
ipvsadm -A -t 10.96.0.10:80 -s rr && ipvsadm -a -t 10.96.0.10:80 -r 10.0.0.1:80 %s && margay check; status=$?
ipvsadm -C; ip link del kube-ipvs0; exit $status`, conntrack, forward)}
}

// limited runs a script of the shell whose agent may use so much memory. It is in a control group of its own: the tools that ask it need
// memory, too.
func limited(memory, script string) []string {
	return []string{"sh", "-c", fmt.Sprintf(`cd /sys/fs/cgroup && echo +memory >cgroup.subtree_control &&
mkdir m%[1]s && echo %[1]s >m%[1]s/memory.max && cd / || exit 1
agent() { exec sh -c 'echo $$ >/sys/fs/cgroup/m%[1]s/cgroup.procs && exec margay run "$@"' agent "$@"; }
%[2]s`, memory, script)}
}

// unlimited begins a script whose agent may use all memory.
const unlimited = `agent() { exec margay run "$@"; }
`

// untilReady runs an agent until it enforces policy.
const untilReady = `agent --datastore directory --dir /run --node n &
for i in 1 2 3 4 5 6 7 8 9 10; do
	sleep 2
	margay show status && { kill $!; wait $!; exec margay cleanup; }
done
exit 1`

// plan is what is booted, in order; only what is in the short form if short.
func plan(short bool) []guest {
	all := []guest{
		{
			name: "6.1", arch: "amd64", series: "6.1", limit: 25 * time.Minute, modules: packetModules,
			tasks: append([]task{
				{
					name: "check", command: []string{"margay", "check"}, limit: time.Minute,
					check: says(0, "TCX links", "missing", "Linux 6.6 and later"),
				},
				{
					name: "run with BPF", command: append(slices.Clone(runAgent), "--dataplane", "bpf"), limit: time.Minute,
					check: refuses("margay: kernel 6.1.", "cannot run the BPF dataplane", "TCX links: missing (Linux 6.6)"),
				},
				{
					name: "run", limit: 2 * time.Minute,
					command: []string{"sh", "-c", strings.Join(runAgent, " ") + " & until margay show status; do sleep 1; kill -0 $! || break; done; kill $!; wait $!"},
					check:   says(0, "policy is enforced by another dataplane than the preferred one", "iptables-legacy", "TCX links: missing (Linux 6.6)"),
				},
			}, netfilterTests...),
		},
		{name: "6.1-node", arch: "amd64", series: "6.1", counted: true, limit: 60 * time.Minute, modules: packetModules, tasks: fallbackTests},
		{name: "6.1-ipv4", arch: "amd64", series: "6.1", setting: "ipv6.disable=1", limit: 15 * time.Minute, modules: packetModules, tasks: ipv4Tasks},
		{name: "6.12-ipv4", arch: "amd64", series: "6.12", setting: "ipv6.disable=1", limit: 15 * time.Minute, modules: packetModules, tasks: ipv4Tasks},
		{name: "6.12", arch: "amd64", series: "6.12", limit: 30 * time.Minute, modules: packetModules, tasks: programTests},
		{name: "newest", arch: "amd64", limit: 30 * time.Minute, modules: packetModules, tasks: programTests},
		{name: "6.12-arm64", arch: "arm64", series: "6.12", limit: 30 * time.Minute, modules: packetModules, tasks: programTests},
		{name: "6.12-node", arch: "amd64", series: "6.12", counted: true, limit: 40 * time.Minute, modules: packetModules, tasks: nodeTests},
		{name: "newest-node", arch: "amd64", counted: true, limit: 40 * time.Minute, modules: packetModules, tasks: nodeTests},
	}
	if !short {
		return patient(all)
	}
	var guests []guest
	for _, g := range all {
		var tasks []task
		for _, t := range g.tasks {
			if t.long {
				continue
			}
			if t.quick != "" {
				t.args = []string{"-test.v", "-test.run=" + t.quick}
			}
			tasks = append(tasks, t)
		}
		if g.tasks = tasks; len(tasks) > 0 {
			guests = append(guests, g)
		}
	}
	return guests
}

// patience is how many times longer the whole may take than on an idle machine, where each limit is two or three times what is needed. Limits
// only end what hangs, and the clock goes on while others have the processor.
const patience = 3

func patient(guests []guest) []guest {
	for i := range guests {
		g := &guests[i]
		g.limit *= patience
		g.tasks = slices.Clone(g.tasks)
		for k := range g.tasks {
			g.tasks[k].limit *= patience
		}
	}
	return guests
}
