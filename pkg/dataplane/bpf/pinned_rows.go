package bpf

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/ruletext"
	"github.com/margay-project/margay/pkg/model"
)

// Policies are the policies that have an entry in the match table of a local endpoint. One without rules in a direction has
// an entry only if it is the first that isolates the endpoint, so some that deny everything beside others are missing.
func (s *PinnedState) Policies() ([]inspect.PolicyRow, error) {
	found := map[model.RuleID]*inspect.PolicyRow{}
	for _, ep := range s.endpoints {
		for _, d := range []model.Direction{model.Ingress, model.Egress} {
			policy, err := s.policy(ep, d)
			if err != nil {
				return nil, err
			}
			for _, id := range policiesIn(policy.program.IDs) {
				row := found[id]
				if row == nil {
					_, kind := id.Policy.Kind.API()
					row = &inspect.PolicyRow{Tier: id.Tier, Kind: kind, Namespace: id.Policy.Namespace, Name: id.Policy.Name}
					found[id] = row
				}
				if d == model.Ingress {
					row.Ingress++
				} else {
					row.Egress++
				}
			}
		}
	}
	rows := []inspect.PolicyRow{}
	for _, row := range found {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b inspect.PolicyRow) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return rows, nil
}

// Sets are the sets that rules refer to, with their members. Their selectors are not in the maps.
func (s *PinnedState) Sets() ([]inspect.SetRow, error) {
	const some = 5
	if err := s.readMembers(); err != nil {
		return nil, err
	}
	names, err := s.maps.Names.Sets.Load()
	if err != nil {
		return nil, err
	}
	rows := []inspect.SetRow{}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		id, _, err := s.maps.Names.Set(n)
		if err != nil {
			return nil, err
		}
		members := s.members[n]
		row := inspect.SetRow{Number: n, ID: id, Members: len(members), Some: []string{}, Namespaces: s.namespaces(members)}
		for _, m := range members[:min(len(members), some)] {
			row.Some = append(row.Some, prefixText(m))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// namespaces are those of the local endpoints that own one of the addresses, sorted.
func (s *PinnedState) namespaces(members []netip.Prefix) []string {
	found := []string{}
	for _, ep := range s.endpoints {
		owns := func(a netip.Addr) bool {
			_, is := slices.BinarySearchFunc(members, netip.PrefixFrom(a, a.BitLen()), netip.Prefix.Compare)
			return is
		}
		if ep.ID.Namespace != "" && slices.ContainsFunc(ep.Addrs, owns) {
			found = append(found, ep.ID.Namespace)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// SetText is a set by the first of its members.
func (s *PinnedState) SetText(n uint32) (string, error) {
	const some = 2
	if err := s.readMembers(); err != nil {
		return "", err
	}
	members := s.members[n]
	switch {
	case len(members) == 0 && s.unrecorded > 0:
		return ruletext.Set(n) + ": no address on record", nil
	case len(members) == 0:
		return ruletext.Set(n) + ": empty", nil
	}
	var parts []string
	for _, m := range members[:min(len(members), some)] {
		parts = append(parts, prefixText(m))
	}
	if left := len(members) - some; left > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", left))
	}
	return ruletext.Set(n) + ": " + strings.Join(parts, ", "), nil
}

// readMembers reads the members of all sets once. A member inside another one is left out: it is a member because of
// that one, and has an entry for another reason.
func (s *PinnedState) readMembers() error {
	if s.members != nil {
		return nil
	}
	addrs, err := s.maps.Addresses.All()
	if err != nil {
		return err
	}
	members := map[uint32][]netip.Prefix{}
	for p, info := range addrs {
		sets, err := s.setsOf(info.Class)
		if err != nil {
			return err
		}
		if info.Class > classes.None6 && len(sets) == 0 || slices.Contains(sets, 0) { // see partial
			s.unrecorded++
		}
		for _, n := range sets {
			members[n] = append(members[n], p)
		}
	}
	for n, list := range members {
		members[n] = outermost(list)
	}
	s.members = members
	return nil
}

// Unrecorded is how many addresses are in sets that the maps do not have, for want of room in class_sets, as far as members of sets have been asked
// for. They are missing among the members.
func (s *PinnedState) Unrecorded() int { return s.unrecorded }

// outermost are the prefixes that are in no other of the list, sorted.
func outermost(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	var kept []netip.Prefix
	for _, p := range list {
		// Sorted by address and then by length, a prefix comes right after those around it.
		if n := len(kept); n > 0 && kept[n-1].Overlaps(p) {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
