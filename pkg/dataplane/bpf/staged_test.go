package bpf

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// stagedDeny is a staged policy, in front of all others, that denies sources in 10.0.0.0/30 and lets all else go on.
func stagedDeny(name string, staged bool) model.PolicyUpdate {
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindStagedGlobalNetworkPolicy, Name: name}, Policy: &model.Policy{
		Tier: model.TierDefault, Order: 0, Selector: selector.Equal("app", "a"), AppliesIngress: true, Staged: staged,
		Ingress: []model.Rule{{Action: model.Deny, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}}}},
	}}
}

// counted are the packets that staged policies would have decided otherwise, by what would have decided.
func (n *node) counted(t *testing.T) map[string]uint64 {
	t.Helper()
	counts, err := n.Inspector().RuleCounts()
	if err != nil {
		t.Fatal(err)
	}
	byRule := map[string]uint64{}
	for _, c := range n.Inspector().Staged(counts) {
		byRule[c.Rule.String()] = c.Packets
	}
	return byRule
}

// sendStaged sends first packets of flows to endpoint a, whose staged policies count for the interface that the program runs on.
func (n *node) sendStaged(t *testing.T, src string, port uint16, packets int) {
	t.Helper()
	entry, ok := n.kernel.maps.Staged.Believed(1000)
	if !ok {
		t.Fatal("endpoint a has no staged policies in the kernel")
	}
	n.kernel.maps.Staged.Set(loopback, entry)
	if err := n.kernel.maps.Staged.Sync(); err != nil {
		t.Fatal(err)
	}
	for range packets {
		passes(t, n.BPF, src, port)
	}
	n.kernel.maps.Staged.Delete(loopback)
	if err := n.kernel.maps.Staged.Sync(); err != nil {
		t.Fatal(err)
	}
}

const denied = "staged:ingress:default/sgnp/draft#ingress[0]"

func TestStagedPoliciesAreEvaluatedAndCountedAndEnforceNothing(t *testing.T) {
	s := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	n := startNode(t, s)
	flags := func() uint32 {
		entry, _ := n.kernel.endpoints.Get(1000)
		return entry.Flags
	}
	if flags() != bpf.EPReady || n.kernel.maps.Staged.Len() != 0 {
		t.Errorf("without staged policies: flags %d, %d entries", flags(), n.kernel.maps.Staged.Len())
	}
	before, _ := n.kernel.endpoints.Get(1000)
	n.mustApply(t, stagedDeny("draft", true))
	n.goOn(t)
	after, _ := n.kernel.endpoints.Get(1000)
	if flags() != bpf.EPReady|bpf.EPStagedIngress || before.Ingress != after.Ingress || before.Egress != after.Egress {
		t.Errorf("with a staged policy: flags %d, policy words %x %x, were %x %x", flags(), after.Ingress, after.Egress, before.Ingress, before.Egress)
	}
	if !passes(t, n.BPF, "10.0.0.1", 80) {
		t.Error("a staged policy denies")
	}
	n.sendStaged(t, "10.0.0.1", 80, 3) // allowed, and would be denied
	n.sendStaged(t, "10.0.0.2", 80, 2) // denied either way
	if got := n.counted(t); got[denied] != 3 || len(got) != 1 {
		t.Errorf("counted %v, want 3 by %s", got, denied)
	}
	for _, status := range n.Endpoints() {
		if status.Staged != "" {
			t.Errorf("%s: %s", status.ID, status.Staged)
		}
	}
	n.mustApply(t, model.PolicyUpdate{Key: stagedDeny("draft", true).Key})
	n.goOn(t)
	if flags() != bpf.EPReady || n.kernel.maps.Staged.Len() != 0 || len(n.counted(t)) != 0 {
		t.Errorf("without staged policies again: flags %d, %d entries, counts %v", flags(), n.kernel.maps.Staged.Len(), n.counted(t))
	}
}

func TestCountsOfStagedPoliciesSurviveARestart(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	s := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	updates := append(s.updates(), stagedDeny("draft", true))
	n := openNode(t, dir, nil)
	n.mustApply(t, updates...)
	n.goOn(t)
	n.sendStaged(t, "10.0.0.1", 80, 4)
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	t.Cleanup(func() { mustClose(t, n.BPF) })
	if entry, _ := n.kernel.endpoints.Get(1000); entry.Flags != bpf.EPReady {
		t.Errorf("flags %d before the first plan: slots of staged policies may be others' by now", entry.Flags)
	}
	n.mustApply(t, updates...)
	n.goOn(t)
	n.sendStaged(t, "10.0.0.1", 80, 1)
	if got := n.counted(t); got[denied] != 5 {
		t.Errorf("counted %v, want 5: 4 of them before the restart", got)
	}
}

// TestAStagedPolicyThatIsAlteredIsRepaired: the endpoint's entry refers to the new slot at once, and the altered one is free.
func TestAStagedPolicyThatIsAlteredIsRepaired(t *testing.T) {
	n := startNode(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}})
	n.mustApply(t, stagedDeny("draft", true))
	n.goOn(t)
	before, _ := n.kernel.maps.Staged.Believed(1000)
	slot, _ := bpfmaps.SplitPolicyWord(before.Ingress)
	if n.state.tables.atOnce = 1; slot < 2 { // it is compared in an Apply after the one that writes all endpoints
		t.Fatalf("slot %d: the test tests nothing", slot)
	}
	allowAll(t, n, slot)
	n.Resync()
	n.mustApply(t)
	n.goOn(t)
	after, _ := n.kernel.maps.Staged.Believed(1000)
	if now, _ := bpfmaps.SplitPolicyWord(after.Ingress); now == slot || now == 0 {
		t.Errorf("the staged policy is in slot %d, was altered in slot %d", now, slot)
	}
	n.sendStaged(t, "10.0.0.1", 80, 1)
	if got := n.counted(t); got[denied] != 1 {
		t.Errorf("counted %v, want one by %s", got, denied)
	}
}
