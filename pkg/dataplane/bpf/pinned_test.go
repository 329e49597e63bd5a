package bpf

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// leftBy are the maps of a node that enforced the updates and has been closed, and how its programs judged TCP packets from
// the sources to ports of endpoint a.
func leftBy(t *testing.T, configure func(*dataplane.Config), updates []model.Update, sources []string, ports []uint16) (*PinnedState, map[string]bool) {
	t.Helper()
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	c := dataplane.Defaults()
	c.BPFFS, c.NoShortcut, c.EventRate = dir, true, 0
	configure(&c)
	host := NewFakeHost()
	host.Ifaces = map[string]uint32{"calia": 1000, "cali0": 1001}
	dp, err := OpenBPF(c, host, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{BPF: dp, host: host, graph: calc.New("n")}
	n.mustApply(t, updates...)
	judged := map[string]bool{}
	for _, src := range sources {
		for _, port := range ports {
			judged[netip.AddrPortFrom(netip.MustParseAddr(src), port).String()] = passes(t, dp, src, port)
		}
	}
	mustClose(t, dp)
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	state, err := ReadPinned(m)
	if err != nil {
		t.Fatal(err)
	}
	return state, judged
}

func TestPinnedMapsJudgeAsTheProgramsDid(t *testing.T) {
	sources := []string{"10.0.0.1", "10.0.0.2", "172.16.0.0", "172.17.1.7", "172.17.3.255", "192.0.2.1"}
	ports := []uint16{80, 443, 1000, 1001, 1002, 1003, 1004}
	for name, configure := range map[string]func(*dataplane.Config){
		"table":       func(*dataplane.Config) {},
		"wide table":  func(c *dataplane.Config) { c.Wide = true },
		"match table": func(c *dataplane.Config) { c.Interpret = true },
	} {
		t.Run(name, func(t *testing.T) {
			updates := append(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80, 443}}.updates(), tenantRanges(6)...)
			// The tenant's policy is for endpoint a, too.
			for _, u := range updates {
				if p, ok := u.(model.PolicyUpdate); ok {
					p.Policy.Selector = updates[3].(model.PolicyUpdate).Policy.Selector
				}
			}
			state, judged := leftBy(t, configure, updates, sources, ports)
			if len(state.Endpoints()) != 1 || state.Endpoints()[0].ID.String() != "t/a" {
				t.Fatalf("endpoints %+v, want t/a", state.Endpoints())
			}
			allowed := 0
			for text, want := range judged {
				from := netip.MustParseAddrPort(text)
				packet := model.Packet{Src: from.Addr(), Dst: netip.MustParseAddr("10.0.0.10"), Protocol: model.ProtoTCP, SrcPort: 20000, DstPort: from.Port()}
				v, err := state.Judge(state.Endpoints()[0], model.Ingress, packet)
				if err != nil || v.Allow != want {
					t.Errorf("from %s: allow %t (%v), the programs said %t", text, v.Allow, err, want)
				}
				if v.By == (model.RuleID{}) {
					t.Errorf("from %s: nothing is named", text)
				}
				if v.Allow {
					allowed++
				}
			}
			if allowed < 4 || allowed == len(judged) {
				t.Errorf("%d of %d packets are allowed: that shows nothing", allowed, len(judged))
			}
		})
	}
}

func TestPinnedMapsNamePoliciesAndMembersOfSets(t *testing.T) {
	s := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}, more: 1}
	updates := append(s.updates(), model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "q"}, Policy: &model.Policy{
		Tier: model.TierDefault, Order: 2, Selector: s.updates()[3].(model.PolicyUpdate).Policy.Selector, AppliesIngress: true,
		Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.9.0.0/16")}}}},
	}})
	state, _ := leftBy(t, func(*dataplane.Config) {}, updates, nil, nil)
	policies, err := state.Policies()
	want := []inspect.PolicyRow{
		{Tier: "default", Kind: "GlobalNetworkPolicy", Name: "p", Ingress: 2}, {Tier: "default", Kind: "GlobalNetworkPolicy", Name: "q", Ingress: 2},
	}
	if diff := cmp.Diff(want, policies); err != nil || diff != "" {
		t.Errorf("policies: %v (-want +got):\n%s", err, diff)
	}
	sets, err := state.Sets()
	var members []string
	for _, row := range sets {
		text, err1 := state.SetText(row.Number)
		err = errors.Join(err, err1)
		members = append(members, text[len("set 1: "):])
	}
	slices.Sort(members)
	// The pods inside 10.0.0.0/24 have entries of their own, which are not members of the list.
	if diff := cmp.Diff([]string{"10.0.0.0/24, 10.9.0.0/16", "10.0.0.1"}, members); err != nil || diff != "" {
		t.Errorf("sets: %v (-want +got):\n%s", err, diff)
	}
}

func TestPinnedMapsDoNotJudgeEgressToAService(t *testing.T) {
	service := netip.MustParseAddr("10.96.0.1")
	updates := append(stage{}.updates(), model.ServiceUpdate{Key: model.ServiceKey{Namespace: "t", Name: "s"},
		Service: &model.Service{Cluster: []netip.Addr{service}}})
	state, _ := leftBy(t, func(*dataplane.Config) {}, updates, nil, nil)
	packet := model.Packet{Src: netip.MustParseAddr("10.0.0.10"), Dst: service, Protocol: model.ProtoTCP, DstPort: 80}
	if v, err := state.Judge(state.Endpoints()[0], model.Egress, packet); !errors.Is(err, ErrService) {
		t.Errorf("egress to a Service: %+v, %v, want %v", v, err, ErrService)
	}
}

// Without an agent tools do not know the members whose classes are unrecorded. They say so, and do not call a set empty for that.
func TestPinnedMapsSayThatMembersAreNotOnRecord(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), smallClassSets)
	defer mustClose(t, n.BPF)
	n.mustApply(t, stage{role: "other", allow: []string{"friend"}, ports: []uint16{80}}.updates()...)
	see := func(when string, want string, known bool) {
		t.Helper()
		s, err := ReadPinned(n.kernel.maps)
		must(t, err)
		rows, err := s.RuleRows(tortureA)
		must(t, err)
		if text := fmt.Sprint(rows); !strings.Contains(text, want) {
			t.Errorf("%s: rules are %s, want %q in them", when, text, want)
		}
		if (s.Unrecorded() == 0) != known {
			t.Errorf("%s: the sets of %d addresses are not on record", when, s.Unrecorded())
		}
	}
	see("before", ": empty", true)
	n.mustApply(t, crowd(400, false)...)
	n.mustApply(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}.updates()...)
	see("while classes are unrecorded", ": no address on record", false)
}
