package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// numbered is the manifest of pods of another node that give the name http so many numbers, from 20000 on.
func numbered(pods, each int) string {
	var b strings.Builder
	for i := range pods {
		fmt.Fprintf(&b, "{apiVersion: v1, kind: Pod, metadata: {name: n%d, namespace: evil}, status: {phase: Running, podIP: 10.77.%d.%d},\n"+
			"spec: {nodeName: elsewhere, containers: [\n", i, i>>8, i&255)
		for n := range each {
			fmt.Fprintf(&b, "{name: c%d, ports: [{name: http, containerPort: %d}]},\n", n, 20000+i*each+n)
		}
		b.WriteString("]}}\n---\n")
	}
	return b.String()
}

// A rule names a port, and a tenant's pods give that name 40,000 numbers: the rule used to need a set for each, so that a policy
// of somebody else with such rules was refused and its pods were closed or kept the last one. All pods declare the port 80.
func TestManyNumbersOfAPortNameRefuseNobodysPolicy(t *testing.T) {
	s := newScene(t)
	for _, p := range []*lab.Pod{s.b, s.m} {
		for _, port := range []uint16{80, 81} {
			if _, err := echo.ListenTCP(p.Host, port); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Write("evil-numbers.yaml", numbered(40, 1000))
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}], ports: [{port: http}]}]}`)
	s.AwaitPolicies(s.a, 0, 1)
	s.awaitProblem("the port name http")
	for _, to := range []*lab.Pod{s.b, s.m} {
		for port, want := range map[uint16]echo.Outcome{80: echo.Connected, 81: echo.Timeout} {
			timeout := testcluster.Never
			if want == echo.Connected {
				timeout = testcluster.Soon
			}
			if got := echo.DialTCP(s.a.Host, netip.AddrPortFrom(to.Addr(false), port), timeout); got.Outcome != want {
				t.Errorf("a to %s:%d: %v, want %v", to.Name(), port, got.Outcome, want)
			}
		}
	}
	if row := s.Row(s.a); row == nil || row.Error != "" {
		t.Errorf("a's pod: %+v", row)
	}
}
