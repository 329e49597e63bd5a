package iptables

import (
	"context"
	"slices"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
)

// Dropped counts the packets that were dropped for one reason, of all endpoints together.
type Dropped struct {
	Reason         bpf.DropReason
	Direction      model.Direction
	Packets, Bytes uint64
}

// dropKind is the reason and direction for which a rule that drops is counted.
type dropKind struct {
	reason    bpf.DropReason
	direction model.Direction
}

// droppers maps chains to the kind that all of their drops count for. A chain that gets packets of both directions counts for
// egress.
var droppers = map[string]dropKind{
	chains.DropsSpoofed: {bpf.MargayDropReasonDROP_SPOOFED, model.Egress},
	chains.DropsStale:   {bpf.MargayDropReasonDROP_NO_ENDPOINT, model.Ingress},
	chains.DropsInvalid: {bpf.MargayDropReasonDROP_CT_INVALID, model.Egress},
	chains.DropsLoose:   {bpf.MargayDropReasonDROP_MIDFLOW, model.Egress},
	chains.DropsRouted:  {bpf.MargayDropReasonDROP_SOURCE_ROUTE, model.Egress},
	chains.DropsBounced: {bpf.MargayDropReasonDROP_BAD_HEADER, model.Egress},
	"odd":               {bpf.MargayDropReasonDROP_CT_INVALID, model.Egress},
	"encap":             {bpf.MargayDropReasonDROP_ENCAP, model.Egress},
	"encap-nat":         {bpf.MargayDropReasonDROP_ENCAP, model.Egress},
	"error":             {bpf.MargayDropReasonDROP_BAD_HEADER, model.Egress},
	"revoked":           {bpf.MargayDropReasonDROP_REVOKED, model.Egress},
	"OUTPUT":            {bpf.MargayDropReasonDROP_NO_ENDPOINT, model.Ingress},
	"translated":        {bpf.MargayDropReasonDROP_NO_ENDPOINT, model.Ingress},
}

// eachDrop passes the counter of each rule of a world that drops to each, with the rule's chain. Denials are counted at the slot's
// jump to the denying chain: that chain itself is written again with each generation, and would count from 0.
func eachDrop(saved *ruleset.Saved, names chains.Names, each func(chain string, kind dropKind, c ruleset.Counter)) {
	slots := directions(saved, names)
	for i := range saved.Chains {
		c := &saved.Chains[i]
		name, ours := strings.CutPrefix(c.Name, names.Chain(""))
		if !ours {
			continue
		}
		slot, _, _ := strings.Cut(name, "-")
		direction, isSlot := slots[slot]
		judged := 0
		for _, r := range c.Rules {
			target, _ := ruleset.Target(r.Text)
			kind, ok := droppers[name]
			ok = ok && (target == "DROP" || name == "revoked" && target == "ACCEPT") // and is reset later
			switch {
			case isSlot && target == names.Chain("deny"):
				kind, ok = dropKind{bpf.MargayDropReasonDROP_POLICY, direction}, true
			case target == "DROP" && name == "INPUT" && r.Text == "-j DROP":
				kind, ok = dropKind{bpf.MargayDropReasonDROP_HOST_ACTION, model.Egress}, true
			case target == "DROP" && slices.Contains([]string{"F", "R", "INPUT"}, name): // it fell off the slots: egress is judged first
				kind, ok = dropKind{bpf.MargayDropReasonDROP_NO_TABLE, model.Egress}, true
				if judged++; judged > 1 {
					kind.direction = model.Ingress
				}
			}
			if ok {
				each(c.Name, kind, r.Counter)
			}
		}
	}
}

// eachDrop passes the counters of all chains in force that drop.
func (f *inForce) eachDrop(each func(family uint8, chain string, kind dropKind, c ruleset.Counter)) {
	for family, names := range f.names {
		for _, saved := range []*ruleset.Saved{f.raw[family], f.saved[family]} {
			eachDrop(saved, names, func(chain string, kind dropKind, c ruleset.Counter) { each(family, chain, kind, c) })
		}
	}
}

// directions returns the direction of each slot, by the part of chain names that identifies the slot.
func directions(saved *ruleset.Saved, names chains.Names) map[string]model.Direction {
	all := map[string]model.Direction{}
	for tree, direction := range map[chains.Direction]model.Direction{chains.EgressSlots: model.Egress, chains.IngressSlots: model.Ingress} {
		first := names.Chain(string(tree))
		for i := range saved.Chains {
			c := &saved.Chains[i]
			if c.Name != first && !strings.HasPrefix(c.Name, first+"-") {
				continue
			}
			for _, r := range c.Rules {
				target, _ := ruleset.Target(r.Text)
				if slot, ok := strings.CutPrefix(target, names.Chain("s")); ok {
					all["s"+slot] = direction
				}
			}
		}
	}
	return all
}

// ReadDrops reads how many packets the chains in force in this network namespace have dropped, since each was last written. tools
// are those of all backends that an agent may have used.
func ReadDrops(ctx context.Context, tools []*iptables.Tools) ([]Dropped, error) {
	sums := map[dropKind]ruleset.Counter{}
	for _, t := range tools {
		_, found, err := newWorld(ctx, t, "")
		if err != nil {
			return nil, err
		}
		found.eachDrop(func(_ uint8, _ string, kind dropKind, c ruleset.Counter) {
			sum := sums[kind]
			sums[kind] = ruleset.Counter{Packets: sum.Packets + c.Packets, Bytes: sum.Bytes + c.Bytes}
		})
	}
	var list []Dropped
	for kind, c := range sums {
		if c.Packets > 0 {
			list = append(list, Dropped{kind.reason, kind.direction, c.Packets, c.Bytes})
		}
	}
	return list, nil
}
