package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// PinnedState is the enforced state, not the desired one, read from the pinned maps alone: the local endpoints and the
// verdicts of their policy. Tools need it while no agent runs. It reads each part when it is first needed, and keeps it. Not
// safe for concurrent use.
type PinnedState struct {
	maps      *bpfmaps.Maps
	endpoints []PinnedEndpoint // by interface number
	node      []netip.Addr
	members   map[uint32][]netip.Prefix // of sets, by number; nil: not read yet
	classSets map[uint32][]uint32
	policies  map[pinnedKey]*pinnedPolicy

	unrecorded int // addresses whose sets are not on record, or not all of them; known with members
}

// PinnedEndpoint is a local endpoint.
type PinnedEndpoint struct {
	ID      model.EndpointID // zero: the maps have no name for it
	Ifindex uint32
	Addrs   []netip.Addr   // that it owns, ascending
	Sources []netip.Prefix // that it may send from, too, ascending
	name    string         // as it is in the maps: cut if it is too long
	words   [2]uint64      // by model.Direction
}

// pinnedKey is one direction's use of a slot: entries have no other names in it.
type pinnedKey struct {
	slot uint32
	dir  model.Direction
}

// pinnedPolicy is the policy of one direction.
type pinnedPolicy struct {
	program match.Program
	table   table.Table
	texts   []string // by entry, of those whose name in the maps is no rule's id: cut, or missing
}

// ReadPinned reads who the local endpoints are. The state uses m until it is dropped.
func ReadPinned(m *bpfmaps.Maps) (*PinnedState, error) {
	entries, err := pinnedEntries(m)
	if err != nil {
		return nil, err
	}
	addrs, err := m.Addresses.All()
	if err != nil {
		return nil, err
	}
	s := &PinnedState{maps: m, policies: map[pinnedKey]*pinnedPolicy{}}
	owned := map[uint32][]netip.Addr{}
	for p, info := range addrs {
		if info.Flags&bpf.AddrEndpoint != 0 {
			owned[info.Ifindex] = append(owned[info.Ifindex], p.Addr())
		}
		if info.Flags&bpf.AddrHost != 0 {
			s.node = append(s.node, p.Addr())
		}
	}
	slices.SortFunc(s.node, netip.Addr.Compare)
	sources, err := pinnedSources(m)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, _, err := m.Names.Endpoint(e.Ifindex)
		if err != nil {
			return nil, err
		}
		ep := PinnedEndpoint{ID: endpointID(name), name: name, Ifindex: e.Ifindex, Addrs: owned[e.Ifindex],
			Sources: sources[e.Ifindex], words: [2]uint64{e.Ingress, e.Egress}}
		slices.SortFunc(ep.Addrs, netip.Addr.Compare)
		s.endpoints = append(s.endpoints, ep)
	}
	slices.SortFunc(s.endpoints, func(a, b PinnedEndpoint) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	return s, nil
}

// Endpoints are the local endpoints, by interface number.
func (s *PinnedState) Endpoints() []PinnedEndpoint { return s.endpoints }

// NodeAddrs are the node's own addresses, ascending.
func (s *PinnedState) NodeAddrs() []netip.Addr { return s.node }

// ErrService says that kube-proxy translates a destination before policy judges it, so the maps alone cannot say which
// address is judged.
var ErrService = errors.New("it is an address of a Service")

// PinnedVerdict is what the policy of one direction of an endpoint decides.
type PinnedVerdict struct {
	Allow bool
	By    model.RuleID // the rule that decided; zero: no entry did, or its name is not in the maps as a whole
	Text  string       // without By: the part of the name that is in the maps
	// Policies are the policies that have an entry in the direction's match table, with their tiers, in order.
	Policies []model.RuleID
}

// Judge evaluates the policy of one direction of an endpoint for a packet as the programs in the kernel do. For a Service's
// address as the destination of an egress it returns ErrService.
func (s *PinnedState) Judge(ep PinnedEndpoint, d model.Direction, pkt model.Packet) (PinnedVerdict, error) {
	remote := pkt.Src
	if d == model.Egress {
		remote = pkt.Dst
	}
	info, known, err := s.maps.Addresses.Lookup(remote)
	if err != nil {
		return PinnedVerdict{}, err
	}
	if d == model.Egress && info.Flags&bpf.AddrMayTranslate != 0 {
		return PinnedVerdict{}, fmt.Errorf("egress to %s: %w", remote, ErrService)
	}
	policy, err := s.policy(ep, d)
	if err != nil {
		return PinnedVerdict{}, err
	}
	class := classes.Class{ID: info.Class, Family: 4}
	if remote.Is6() {
		class.Family = 6
		if !known {
			class.ID = classes.None6
		}
	}
	outcome := policy.table.Eval(class.ID, pkt)
	if policy.table.Interpreted() {
		if class.Sets, err = s.setsOf(class.ID); err != nil {
			return PinnedVerdict{}, err
		}
		outcome = policy.program.Interpret(class, pkt)
	}
	verdict := PinnedVerdict{Allow: outcome.Action == bpf.RuleAllow, Policies: policiesIn(policy.program.IDs)}
	if int(outcome.Rule) < len(policy.program.IDs) {
		verdict.By, verdict.Text = policy.program.IDs[outcome.Rule], policy.texts[outcome.Rule]
	}
	return verdict, nil
}

// Bounds are the ports from which on the policy of one direction of an endpoint may judge differently than just below
// them, in any order.
func (s *PinnedState) Bounds(ep PinnedEndpoint, d model.Direction) ([]uint32, error) {
	policy, err := s.policy(ep, d)
	if err != nil {
		return nil, err
	}
	var bounds []uint32
	for _, r := range policy.program.Rules {
		for _, ports := range r.Dport[:min(int(r.Ndports), len(r.Dport))] {
			bounds = append(bounds, uint32(ports.Lo), uint32(ports.Hi)+1)
		}
	}
	return bounds, nil
}

// policy reads the policy of one direction of an endpoint once.
func (s *PinnedState) policy(ep PinnedEndpoint, d model.Direction) (*pinnedPolicy, error) {
	slot, _ := bpfmaps.SplitPolicyWord(ep.words[d])
	key := pinnedKey{slot, d}
	if p := s.policies[key]; p != nil {
		return p, nil
	}
	content, err := s.maps.ReadSlot(slot)
	if err != nil {
		return nil, err
	}
	p := &pinnedPolicy{program: match.Program{Rules: content.Rules}, table: table.Table{
		Direction: d, Slot: content.Shape, L4: content.L4, Rows: content.Rows, RowBlk: content.RowBlk, Cells: content.Cells, Outcomes: content.Outcomes,
	}}
	if p.program.IDs, p.texts, err = ruleNames(s.maps, content.Rules, d); err != nil {
		return nil, err
	}
	s.policies[key] = p
	return p, nil
}

// setsOf are the sets that a class is in.
func (s *PinnedState) setsOf(class uint32) ([]uint32, error) {
	if s.classSets == nil {
		var err error
		if s.classSets, err = bpfmaps.SetsOfClasses(s.maps.ClassSets); err != nil {
			return nil, err
		}
	}
	return s.classSets[class], nil
}

// ruleNames returns the ids of entries by their names in the maps. For a name that is not an id it returns the text.
func ruleNames(m *bpfmaps.Maps, rules []bpf.Rule, d model.Direction) (ids []model.RuleID, texts []string, err error) {
	ids, texts = make([]model.RuleID, len(rules)), make([]string, len(rules))
	for i, r := range rules {
		name, _, err := m.Names.Rule(r.Id)
		if err != nil {
			return nil, nil, err
		}
		var ok bool
		if ids[i], ok = model.ParseRuleID(name, d); !ok {
			texts[i] = cmp.Or(name, "a rule without a name")
		}
	}
	return ids, texts, nil
}

// policiesIn are the policies behind entries, each once.
func policiesIn(ids []model.RuleID) []model.RuleID {
	var policies []model.RuleID
	for _, id := range ids {
		policy := model.RuleID{Tier: id.Tier, Policy: id.Policy}
		if id.Tier != "" && !slices.Contains(policies, policy) {
			policies = append(policies, policy)
		}
	}
	return policies
}

// pinnedEntries are the endpoints that let packets pass.
func pinnedEntries(m *bpfmaps.Maps) ([]bpf.Endpoint, error) {
	e, err := m.OpenEndpoints()
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(e.List(), func(ep bpf.Endpoint) bool { return ep.Flags&bpf.EPReady == 0 })
	return list, e.Close()
}

// pinnedSources are the further sources by interface, ascending.
func pinnedSources(m *bpfmaps.Maps) (map[uint32][]netip.Prefix, error) {
	keys, err := m.Addresses.Sources.Load()
	all := map[uint32][]netip.Prefix{}
	for k := range keys {
		all[k.Ifindex] = append(all[k.Ifindex], bpfmaps.SourcePrefix(k))
	}
	for _, list := range all {
		slices.SortFunc(list, netip.Prefix.Compare)
	}
	return all, err
}

// endpointID is the pod of a name in the maps; zero: there is none.
func endpointID(name string) model.EndpointID {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		return model.EndpointID{}
	}
	return model.WorkloadID(namespace, pod)
}
