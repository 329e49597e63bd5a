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

// perRun is what one run of the program that sees what a pod sends takes, the least of several series of packets, each of
// which is judged.
func (s *scene) perRun(t *testing.T, from *lab.Pod, frame []byte) time.Duration {
	t.Helper()
	row := s.Row(from)
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
	defer program.Close()
	least := time.Hour
	for range 10 {
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
		least = min(least, (after.Runtime-before.Runtime)/time.Duration(runs))
	}
	return least
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
	one := s.perRun(t, s.a, denied)

	start := time.Now()
	for i := range 3 {
		s.Policy(fmt.Sprint("evil/large", i), blocksWithPorts("m", i*5400, 5400))
	}
	longest := time.Duration(0)
	for i := 0; ; i++ {
		asked := time.Now()
		row := s.Row(s.m)
		longest = max(longest, time.Since(asked))
		if row != nil && row.Ingress.Rules > 16000 && row.Error == "" {
			break
		}
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("not enforced: %+v", row)
		}
	}
	t.Logf("enforced after %v; the agent's loop kept others waiting for %v at most", time.Since(start), longest)
	many := s.perRun(t, s.a, denied)
	t.Logf("a judged packet takes %v with one rule and %v with 16,200", one, many)
	if many > 10*time.Microsecond && many > 2*one {
		t.Errorf("a judged packet takes %v, with one rule %v", many, one)
	}
}
