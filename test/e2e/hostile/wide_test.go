package hostile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// blocksWithPorts is the spec of an ingress policy of that many rules, each for an address block and a port of its own.
func blocksWithPorts(app string, first, rules int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [", app)
	for i := first; i < first+rules; i++ {
		fmt.Fprintf(&b, "{from: [{ipBlock: {cidr: 20.%d.%d.0/24}}], ports: [{port: %d}]},\n", i>>8, i&255, i+1)
	}
	return b.String() + "]}"
}

// fromPod opens the program that sees what a pod sends.
func (s *scene) fromPod(t *testing.T, p *lab.Pod) *ebpf.Program {
	t.Helper()
	row := s.Row(p)
	if row == nil {
		t.Fatal("the agent does not know the pod")
	}
	var id uint32
	for _, a := range row.Attached {
		if a.Hook == "tcx/ingress" {
			id = a.ID
		}
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program
}

// perRun is what one run of a program takes, as the mean of a series of packets from a pod, each of which is judged.
func perRun(t *testing.T, program *ebpf.Program, from *lab.Pod, frame []byte) time.Duration {
	t.Helper()
	before, err := program.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		send(t, from, frame)
	}
	after, err := program.Stats()
	if err != nil {
		t.Fatal(err)
	}
	runs := after.RunCount - before.RunCount
	if runs < 100 {
		t.Fatalf("%d runs for 200 packets", runs)
	}
	return (after.Runtime - before.Runtime) / time.Duration(runs)
}

// The largest policy of {ipBlock, port} rules that a tenant can have makes no verdict expensive: it used to be walked rule
// by rule for each packet. Changes of others are enforced while it is compiled.
func TestTheLargestPolicyMakesNoVerdictExpensive(t *testing.T) {
	testcluster.NeedsBPF(t, "it measures programs of BPF")
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	s := newScene(t)
	denied := frame(s.a, s.from(s.a, s.m, false, testutil.UDP{SrcPort: 1000, DstPort: 53}))
	s.Policy("evil/m", blocksWithPorts("m", 0, 1))
	s.AwaitPolicies(s.m, 1, 0)
	program, one := s.fromPod(t, s.a), time.Hour
	for range 10 {
		one = min(one, perRun(t, program, s.a, denied))
	}

	start := time.Now()
	for i := range 3 {
		s.Policy(fmt.Sprint("evil/large", i), blocksWithPorts("m", i*5400, 5400))
	}
	longest := time.Duration(0)
	testutil.WaitFor(t, 2*time.Minute, "16,200 rules to be enforced", func() bool {
		asked := time.Now()
		row := s.Row(s.m)
		longest = max(longest, time.Since(asked))
		return row != nil && row.Ingress.Rules > 16000 && row.Error == ""
	})
	t.Logf("enforced after %v; the agent's loop kept others waiting for %v at most", time.Since(start), longest)
	many := time.Hour
	program = s.fromPod(t, s.a)
	defer func() { t.Logf("a judged packet takes %v with one rule and %v with 16,200", one, many) }()
	// One series in which the machine does little else shows it: no series is that fast if each packet walks 16,200 rules.
	testutil.WaitFor(t, soon, "a judged packet to take as little with 16,200 rules as with one", func() bool {
		many = min(many, perRun(t, program, s.a, denied))
		return many <= max(10*time.Microsecond, 2*one)
	})
}
