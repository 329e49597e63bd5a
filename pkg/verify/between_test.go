package verify

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// TestBetweenFindsEveryChange compares two random policies, with other members of sets after the change, and asks for random packets
// whether their verdict changes.
func TestBetweenFindsEveryChange(t *testing.T) {
	changes := 0
	rapid.Check(t, func(t *rapid.T) {
		worlds := [2]*policytest.World{policytest.DrawWorld(t), policytest.DrawWorld(t)}
		policies := [2]*model.DirectionPolicy{policytest.DrawPolicy(t), policytest.DrawPolicy(t)}
		policies[1].Direction = policies[0].Direction
		if rapid.Bool().Draw(t, "same policy") {
			policies[1] = policies[0]
		}
		b := betweenOf(t, worlds, policies)
		found := map[netip.Addr][]Shifts{}
		for _, own := range worlds[0].Own {
			shifts, _, err := b.Compare(renamedAt(0, policies[0]), renamedAt(1, policies[1]), own)
			if err != nil {
				t.Fatal(err)
			}
			found[own] = shifts
			for _, s := range shifts {
				for _, shift := range s.List {
					changes++
					want := cellOf(worlds, policies, shift.Packet)
					if shift.Cell != want {
						t.Fatalf("%+v: %+v, want %+v", shift.Packet, shift.Cell, want)
					}
				}
			}
		}
		for range 20 {
			p := policytest.DrawPacket(t, worlds[0], policies[0].Direction)
			own, remote := p.Dst, p.Src
			if policies[0].Direction == model.Egress {
				own, remote = remote, own
			}
			kind := b.Kinds(renamedAt(0, policies[0]), renamedAt(1, policies[1]))(remote)
			want := cellOf(worlds, policies, p)
			got, is := shiftOf(found[own], kind, p)
			if is != (want.Was != want.Becomes) || is && got != want {
				t.Fatalf("%+v: found %v, %+v, want %+v", p, is, got, want)
			}
		}
	})
	if changes == 0 {
		t.Error("no change was found: the policies are all alike")
	}
}

func renamedAt(side int, p *model.DirectionPolicy) *model.DirectionPolicy {
	return Renamed(p, func(id model.SetID) model.SetID { return id + model.SetID("/"+string(rune('0'+side))) })
}

func betweenOf(t *rapid.T, worlds [2]*policytest.World, policies [2]*model.DirectionPolicy) *Between {
	atoms := NewAtoms()
	for i, p := range policies {
		atoms.AddPolicy(renamedAt(i, p))
	}
	r := NewRegions(atoms, func() error { return nil })
	for _, id := range atoms.Sets() {
		side := int(id[len(id)-1] - '0')
		r.AddMembers(id, worlds[side].Sets[id[:len(id)-2]])
	}
	r.AddEntries([]Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0")}})
	for _, a := range slices.Concat(policytest.Remotes, []netip.Addr{policytest.Own4, policytest.Own6}) {
		r.Ask(a)
	}
	pairs, err := r.Pairs()
	if err != nil {
		t.Fatal(err)
	}
	return &Between{Atoms: atoms, Pairs: pairs, Of: r.Of}
}

func cellOf(worlds [2]*policytest.World, policies [2]*model.DirectionPolicy, p model.Packet) Cell {
	was := explain.Walk(policies[0], p, worldSets{worlds[0]}).Verdict
	is := explain.Walk(policies[1], p, worldSets{worlds[1]}).Verdict
	return Cell{was.Allow, is.Allow, was.By, is.By}
}

// shiftOf finds the change of a packet's verdict.
func shiftOf(list []Shifts, kind Signature, p model.Packet) (Cell, bool) {
	a, place := AxisOther, uint16(p.Protocol)
	if at := slices.Index(axisProtocols[:], p.Protocol); at >= 0 {
		a = Axis(at)
		if place = p.DstPort; a > AxisSCTP {
			place = uint16(p.Protocol)
			if hasTypes(p.Protocol, Family(p.Src)) {
				place = uint16(p.ICMPType)<<8 | uint16(p.ICMPCode)
			}
		}
	}
	for _, s := range list {
		if s.Kind.Key() != kind.Key() {
			continue
		}
		for _, shift := range s.List {
			source := shift.Sources == nil || slices.ContainsFunc(shift.Sources, func(r Run) bool { return r.Lo <= p.SrcPort && p.SrcPort <= r.Hi })
			if shift.Axis == a && shift.Lo <= place && place <= shift.Hi && source {
				return shift.Cell, true
			}
		}
	}
	return Cell{}, false
}
