package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// opens writes an ingress policy that opens one UDP port to all, and another port to each of so many addresses of its own.
func (s *scene) opens(policy string, port uint16, addresses int) {
	var b strings.Builder
	_, app, _ := strings.Cut(policy, "/")
	fmt.Fprintf(&b, "{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [{ports: [{port: %d, protocol: UDP}]}", app, port)
	for i := range addresses {
		fmt.Fprintf(&b, ",\n{from: [{ipBlock: {cidr: 20.%d.%d.%d/32}}]}", port&255, i>>8, i&255)
	}
	s.Policy(policy, b.String()+"]}")
}

// answers reports whether the UDP port of the pod is open to shop/a.
func (s *scene) answers(p *lab.Pod, port uint16) bool {
	return echo.ExchangeUDP(s.a.Host, netip.AddrPortFrom(p.Addr4(), port), []byte("open?"), 50*time.Millisecond).Outcome == echo.Connected
}

// setNames is how many sets the kernel has a name of.
func setNames(t *testing.T, m *bpfmaps.Maps) (n int) {
	t.Helper()
	var key uint32
	var name bpf.Name
	all := m.Map(bpf.MargayMapSetNames).Iterate()
	for all.Next(&key, &name) {
		n++
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSetsThatATenantLeavesAreCleanedUpBesideOthersChanges: a tenant replaces a large policy again and again, while another pod's
// policy changes all the time. Each change is enforced, and the sets that the tenant's policies leave
// are cleaned up although the changes go on.
func TestSetsThatATenantLeavesAreCleanedUpBesideOthersChanges(t *testing.T) {
	testcluster.NeedsBPF(t, "the test reads BPF maps")
	s := newScene(t)
	const rules, turns, first = 2000, 3, 1000
	for i := range uint16(turns) {
		for _, p := range []*lab.Pod{s.m, s.b} {
			if _, err := echo.ListenUDP(p.Host, first+i); err != nil {
				t.Fatal(err)
			}
		}
	}
	changes := uint16(0)
	change := func() {
		changes++
		port := first + changes%2
		s.opens("shop/b", port, 0)
		testutil.WaitFor(t, soon, "another tenant's change to be enforced", func() bool { return s.answers(s.b, port) && !s.answers(s.b, first+(changes+1)%2) })
	}
	change()
	m := s.Agent(0).Maps()
	before, most := setNames(t, m), 0
	for turn := range uint16(turns) {
		s.opens("evil/m", first+turn, rules)
		testutil.WaitFor(t, time.Minute, "the large policy to be enforced", func() bool {
			change()
			most = max(most, setNames(t, m))
			return s.answers(s.m, first+turn) && (turn == 0 || !s.answers(s.m, first+turn-1))
		})
	}
	testutil.WaitFor(t, time.Minute, "the kernel to have names of the last policy's sets", func() bool { // they are written when there is time
		change()
		most = max(most, setNames(t, m))
		return most >= before+rules/2
	})
	s.Remove("policy-evil.m")
	testutil.WaitFor(t, time.Minute, "the tenant's sets to be cleaned up", func() bool {
		change()
		return setNames(t, m) <= before
	})
	t.Logf("%d sets at most, %d changes of another tenant", most, changes)
}
