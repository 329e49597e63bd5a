package bpf

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// failAt makes a step of plans fail, until the function that it returns is called.
func failAt(t *testing.T, at int, err error) (repair func()) {
	t.Helper()
	was := order[at].do
	repair = func() { order[at].do = was }
	t.Cleanup(repair)
	order[at].do = func(*state) error { return err }
	return repair
}

// beside are an endpoint b with a policy of its own, and its updates.
func beside(ports ...uint16) []model.Update {
	tcp := model.ProtoTCP
	rule := model.Rule{Action: model.Allow, Protocol: &tcp}
	for _, p := range ports {
		rule.Destination.Ports = append(rule.Destination.Ports, model.PortRange{Lo: p, Hi: p})
	}
	return []model.Update{endpoint4("b", "cali1", "10.0.0.11", map[string]string{"app": "b"}),
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "only-b"},
			Policy: &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.Equal("app", "b"), AppliesIngress: true, Ingress: []model.Rule{rule}}}}
}

// wantBehind checks of which endpoints it is said that their newest policy is not in force, and why; empty: of none.
func (n *node) wantBehind(t *testing.T, when, names, why string) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		said, there := "", false
		for _, e := range n.Endpoints() {
			if e.ID == model.WorkloadID("t", name) {
				said, there = cmp.Or(e.NotInForce, e.Misjudged.Text()), true
			}
		}
		behind := strings.Contains(names, name)
		if !there || behind != strings.Contains(said, "its newest policy is not in force yet") || behind != strings.Contains(said, why) {
			t.Errorf("%s: of %s is said %q (there: %t), behind are to be: %q", when, name, said, there, names)
		}
	}
}

// Wherever the write of a plan fails: that is said of the endpoint which the plan changes until that part is written, and of no other.
func TestOnlyEndpointsOfAPlanThatFailsAreSaidToWait(t *testing.T) {
	first := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	ports, role := first, first
	ports.ports, role.role = []uint16{443}, "stranger"
	broken := errors.New("broken")
	for at, s := range order {
		for what, test := range map[string]struct {
			was, next stage
			last      string // step that brings it into force
		}{
			"another policy":  {first, ports, "bind endpoints"},
			"a member joins":  {role, first, "move addresses"},
			"a member leaves": {first, role, "have live flows judged again"},
		} {
			n := startNode(t, test.was)
			n.mustApply(t, beside(80)...)
			repair := failAt(t, at, broken)
			if err := n.apply(test.next.updates()...); !errors.Is(err, broken) {
				t.Fatalf("%s fails: Apply says %v", s.what, err)
			}
			names := ""
			if at < through(test.last) {
				names = "a"
			}
			n.wantBehind(t, s.what+" fails, "+what, names, "broken")
			if err := n.apply(beside(22)...); !errors.Is(err, dataplane.ErrStuck) {
				t.Errorf("%s fails again: Apply says %v", s.what, err)
			}
			n.wantBehind(t, s.what+" fails, then the policy of b waits, "+what, names+"b", "broken")
			repair()
			n.mustApply(t)
			n.wantBehind(t, s.what+" succeeds", "", "its newest policy")
		}
	}
}

func TestTheStepsInWhichAPlanComesIntoForceAreInOrder(t *testing.T) {
	if steps.Moved < 1 || steps.Bound <= steps.Moved || steps.Rejudged <= steps.Bound || steps.All <= steps.Rejudged {
		t.Errorf("%+v", steps)
	}
	for _, what := range []string{"move addresses", "bind endpoints", "have live flows judged again"} {
		if through(what) < 1 {
			t.Errorf("there is no step %q", what)
		}
	}
}

// An agent that starts names the endpoints that an earlier one has programmed, though its plan has not got to them: those that are to
// be judged otherwise wait, and the others do not.
func TestEndpointsOfAnEarlierAgentAreKnownWhileThePlanFails(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	s := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	first := openNode(t, dir, nil)
	first.mustApply(t, append(append(s.updates(), beside(80)...), endpoint4("left", "cali2", "10.0.0.12", nil))...)
	mustClose(t, first.BPF)
	second := openNode(t, dir, nil)
	defer mustClose(t, second.BPF)
	broken := errors.New("broken")
	repair := failAt(t, 0, broken)
	s.ports = []uint16{443}
	if err := second.apply(append(s.updates(), beside(80)...)...); !errors.Is(err, broken) {
		t.Fatalf("Apply says %v", err)
	}
	second.wantBehind(t, "the plan fails", "a", "broken")
	for _, e := range second.Endpoints() {
		if e.Ifindex == 0 || e.ID.Namespace == "" {
			t.Errorf("%+v has no interface, or is no pod", e)
		}
	}
	if s := second.Stats(false); s.Waiting != 2 || s.Enforced+s.Failed != 0 {
		t.Errorf("%d endpoints wait for writes; want a and b, since the policy of neither is known to be in force: %+v", s.Waiting, s)
	}
	repair()
	second.mustApply(t)
	second.wantBehind(t, "the plan succeeds", "", "its newest policy")
}

// An address whose entry the kernel has no memory for is judged as one without sets, which a policy that allows it must be said to do.
func TestOnlyEndpointsWhoseRulesReferToASetWaitForItsMembers(t *testing.T) {
	s := stage{role: "nobody", allow: []string{"friend"}, ports: []uint16{80}}
	n := startNode(t, s)
	n.mustApply(t, beside(80)...)
	refuse := true
	n.kernel.maps.Addresses.IP4Host.Interpose(func(k bpfmaps.Kernel[bpf.IP4, bpf.AddrInfo]) bpfmaps.Kernel[bpf.IP4, bpf.AddrInfo] {
		return &bpfmaps.Faulty[bpf.IP4, bpf.AddrInfo]{Kernel: k, Refuse: func(key bpf.IP4, gone bool) error {
			if refuse && !gone && key.Addr == [4]byte{10, 0, 0, 1} {
				return unix.ENOMEM
			}
			return nil
		}}
	})
	s.role = "friend"
	if err := n.apply(s.updates()...); !errors.Is(err, unix.ENOMEM) || passes(t, n.BPF, "10.0.0.1", 80) {
		t.Fatalf("Apply says %v", err)
	}
	n.wantBehind(t, "there is no memory", "a", "for 10.0.0.1: ")
	refuse = false
	n.state.refusals.Retry.Room()
	n.mustApply(t)
	n.wantBehind(t, "there is memory", "", "its newest policy")
	if !passes(t, n.BPF, "10.0.0.1", 80) {
		t.Error("the member is not allowed")
	}
}
