package bpf_test

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestAStampSparesTheQuestion: under the generation a flow was allowed by, its packets ask no policy, so nothing notices
// what is in the slot; under any other they do.
func TestAStampSparesTheQuestion(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 7), word(slotAllow, 7))
		out, in := udp(f.a, f.out, 1000, 53).Bytes(), udp(f.out, f.a, 53, 1000).Bytes()
		w.fromPod(t, w.podA, out).want(t, 0)
		if fl := w.flow(t); fl.entry.Egress != 7 || fl.entry.Ingress != 0 {
			t.Errorf("stamps %d, %d; want 7, 0", fl.entry.Egress, fl.entry.Ingress)
		}
		w.events(t)
		w.publish(t, w.a, word(slotDeny, 7), word(slotDeny, 7))
		w.fromPod(t, w.podA, out).want(t, 0)
		w.toPod(t, w.podA, outside, in).want(t, 0)
		if told := w.events(t); len(told) != 0 {
			t.Errorf("packets of a stamped flow told %+v", told)
		}
		// A policy that still allows it stamps it anew, and counts it for no rule.
		before := w.stats(t)
		w.publish(t, w.a, word(slotDeny, 8), word(slotAllow, 8))
		w.toPod(t, w.podA, outside, in).want(t, 0)
		if fl := w.flow(t); fl.entry.Egress != 8 {
			t.Errorf("stamp %d, want 8", fl.entry.Egress)
		}
		if after := w.stats(t); after[11] != before[11] {
			t.Errorf("rule counted %d first packets more", after[11]-before[11])
		}
		told := w.events(t)
		if len(told) != 1 || told[0].Flags&uint8(bpf.MargayEventFlagsEVENT_REJUDGED) == 0 || told[0].Reason != 0 || told[0].Generation != 8 {
			t.Errorf("events %+v, want one that it was judged again", told)
		}
	})
}

// TestARevokedDatagramFlowIsNotOpenedFromTheOtherEnd: it stays known without permission, whichever way its packets go, and
// goes on when policy allows it again.
func TestARevokedDatagramFlowIsNotOpenedFromTheOtherEnd(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		out, in := udp(f.a, f.out, 1000, 53).Bytes(), udp(f.out, f.a, 53, 1000).Bytes()
		w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
		for _, opened := range []bool{false, true} {
			for _, denied := range [][]byte{out, in} {
				w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
				w.fromPod(t, w.podA, out).want(t, 0)
				if opened {
					w.toPod(t, w.podA, outside, in).want(t, 0)
				}
				w.events(t)
				// The other direction is open: an answer under way would be allowed if it were the first packet.
				w.publish(t, w.a, word(slotAllow, 2), word(slotDeny, 2))
				if &denied[0] == &out[0] {
					w.fromPod(t, w.podA, out).want(t, bpf.MargayDropReasonDROP_REVOKED)
				} else {
					w.toPod(t, w.podA, outside, in).want(t, bpf.MargayDropReasonDROP_REVOKED)
				}
				told := w.events(t)
				if len(told) != 1 || told[0].Flags&uint8(bpf.MargayEventFlagsEVENT_REVOKED) == 0 || told[0].Reason != uint16(bpf.MargayDropReasonDROP_POLICY) {
					t.Errorf("events %+v, want one that it was revoked", told)
				}
				for range 2 {
					w.toPod(t, w.podA, outside, in).want(t, bpf.MargayDropReasonDROP_POLICY)
					w.fromPod(t, w.podA, out).want(t, bpf.MargayDropReasonDROP_POLICY)
				}
				w.publish(t, w.a, word(slotDeny, 3), word(slotAllow, 3))
				w.fromPod(t, w.podA, out).want(t, 0)
				w.toPod(t, w.podA, outside, in).want(t, 0)
			}
		}
	})
}

// forbidden fails the test unless the one flow there is has no permission, and cannot be opened the other way round.
func (w *world) forbidden(t *testing.T) {
	t.Helper()
	if fl := w.flow(t); !fl.has(oneWay) || fl.entry.Egress != 0 || fl.entry.Ingress != 0 {
		t.Errorf("flow %+v, want it without permission", fl)
	}
}

// TestKeptFlowsSurviveAPolicyThatDeniesThem, with the configuration that says so; new ones are denied.
func TestKeptFlowsSurviveAPolicyThatDeniesThem(t *testing.T) {
	w := newWorld(t, bpf.Config{KeepExisting: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		for range 2 {
			w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, synack).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, ack).Bytes()).want(t, 0)
		}
		w.fromPod(t, w.podA, udp(f.a, f.out, 1001, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		// Generation 0 is nobody's permission, so there is nothing to keep.
		w.publish(t, w.a, word(slotAllow, 0), word(slotAllow, 0))
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_REVOKED)
	})
}

// TestKeptFlowsAreNotInheritedWithAnAddress: where live flows keep their permission, a pod that gets the address of one
// that is gone gets none of them.
func TestKeptFlowsAreNotInheritedWithAnAddress(t *testing.T) {
	w := newWorld(t, bpf.Config{KeepExisting: 1})
	w.eachFamily(t, "keep", func(t *testing.T, f family) {
		packet := udp(f.out, f.a, 1000, 53).Bytes()
		w.toPod(t, w.podA, outside, packet).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podA, outside, packet).want(t, 0)
		heir := *w.b
		heir.Addr4, heir.Addr6 = w.a.Addr4, w.a.Addr6
		w.publish(t, &heir, word(slotDeny, 3), word(slotDeny, 3))
		w.toPod(t, w.podB, outside, packet).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.publish(t, w.b, word(slotAllow, 1), word(slotAllow, 1))
	})
}

// TestKeptFlowsAreNotInheritedWithAnInterfaceNumber: the heir has its number, too, as CNI plugins that move interfaces make it.
func TestKeptFlowsAreNotInheritedWithAnInterfaceNumber(t *testing.T) {
	w := newWorld(t, bpf.Config{KeepExisting: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.b, 1000, 53).Bytes(), udp(f.b, f.a, 53, 1000).Bytes()
		heir := func(first uint32, policy uint32) {
			w.a.Id = first
			w.publish(t, w.a, word(policy, first), word(policy, first+1))
		}
		defer func() { w.a.Id = 1 }()
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		heir(2, slotDeny)
		w.fromPod(t, w.podA, there).want(t, bpf.MargayDropReasonDROP_POLICY)
		// In mid-flow it may be an answer, which the kernel's conntrack knows.
		r := w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, ack).Bytes())
		if r.want(t, 0); r.mark != markSeen|markJudge {
			t.Errorf("TCP of the heir has mark %#x, want it to be judged", r.mark)
		}
		w.reset(t)

		// The heir allows it; the other end has not allowed it with the heir.
		w.a.Id = 1
		w.reset(t)
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		heir(2, slotAllow)
		w.publish(t, w.b, word(slotDeny, 5), word(slotDeny, 5))
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, bpf.MargayDropReasonDROP_POLICY)

		// A flow of the heir is kept.
		w.publish(t, w.b, word(slotAllow, 6), word(slotAllow, 6))
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 7), word(slotDeny, 8))
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podA, w.podB, back).want(t, 0)
	})
}

// TestTheOtherSideOfAnInheritedFlowIsJudgedAnew: the pod at the other end allowed its flow with the former owner of the
// address, and not with the heir, however often its own policy has changed since.
func TestTheOtherSideOfAnInheritedFlowIsJudgedAnew(t *testing.T) {
	w := newWorld(t, bpf.Config{KeepExisting: 1})
	heir := *w.a
	heir.Ifindex = w.veth(t, "caliC")
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.b, 1000, 53).Bytes(), udp(f.b, f.a, 53, 1000).Bytes()

		// The opener's.
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		w.publish(t, &heir, word(slotAllow, 3), word(slotAllow, 3))
		w.fromPod(t, heir.Ifindex, there).want(t, 0)
		w.toPod(t, w.podB, heir.Ifindex, there).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.reset(t)

		// The responder's.
		w.fromPod(t, w.podB, back).want(t, 0)
		w.toPod(t, w.podA, w.podB, back).want(t, 0)
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		w.fromPod(t, w.podB, back).want(t, 0)
		w.publish(t, &heir, word(slotAllow, 3), word(slotAllow, 3))
		w.toPod(t, heir.Ifindex, w.podB, back).want(t, 0)
		w.fromPod(t, w.podB, back).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.publish(t, w.b, word(slotAllow, 4), word(slotAllow, 4))
		w.fromPod(t, w.podB, back).want(t, 0)
		w.publish(t, w.b, word(slotDeny, 5), word(slotDeny, 5))
		w.fromPod(t, w.podB, back).want(t, 0) // kept: allowed for the heir
	})
}

// TestNothingThatIsNoPolicyAllows: slot 0, generation 0, an empty slot, a slot with parts missing.
func TestNothingThatIsNoPolicyAllows(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	// Everybody knows slot 0; even if something were in it, it would not be asked.
	w.policy(t, 0, rule(bpf.RuleAllow, 0, 0))
	missing := bpf.MargayDropReasonDROP_NO_TABLE
	tests := []struct {
		name   string
		word   uint64
		reason bpf.DropReason
	}{
		{"nothing at all", 0, missing},
		{"slot 0", word(0, 5), missing},
		{"generation 0", word(slotAllow, 0), bpf.MargayDropReasonDROP_POLICY},
		{"a slot nobody filled", word(99, 5), missing},
		{"a slot beyond the last", word(4096, 5), missing},
		{"a slot far beyond the last", word(1<<31, 5), missing},
	}
	for _, tc := range tests {
		w.eachFamily(t, tc.name, func(t *testing.T, f family) {
			w.publish(t, w.a, tc.word, tc.word)
			w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, tc.reason)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 1000, 53).Bytes()).want(t, tc.reason)
			w.fromPod(t, w.podA, icmp(f.a, f.out, f.echo, 7).Bytes()).want(t, tc.reason)
			w.noFlow(t)
		})
	}
}

// table puts a decision table into a slot that allows everything to and from classes below 64, but for one part.
func (w *world) table(t *testing.T, slot uint32, without string, change func(s *bpf.Slot)) {
	t.Helper()
	for _, name := range []string{bpf.MargayMapL4, bpf.MargayMapRows, bpf.MargayMapRowblk, bpf.MargayMapCells, bpf.MargayMapOutcomes} {
		if err := w.Maps[name].Delete(slot); err == nil {
			continue
		}
	}
	pages := make([]bpf.L4Page, 13)
	for i := range pages[:12] {
		for j := range pages[i].Col {
			pages[i].Col[j] = 12
		}
	}
	allRow1 := bpf.CellBlock{}
	for i := range allRow1.Cell {
		allRow1.Cell[i] = 1
	}
	if without != bpf.MargayMapL4 {
		part(t, w.machine, bpf.MargayMapL4, slot, pages)
	}
	if without != bpf.MargayMapRows {
		part(t, w.machine, bpf.MargayMapRows, slot, []bpf.CellBlock{allRow1, allRow1})
	}
	if without != bpf.MargayMapRowblk {
		part(t, w.machine, bpf.MargayMapRowblk, slot, []bpf.CellBlock{{Cell: [32]uint16{0, 1}}})
	}
	if without != bpf.MargayMapCells {
		part(t, w.machine, bpf.MargayMapCells, slot, []bpf.CellBlock{{}, allRow1})
	}
	if without != bpf.MargayMapOutcomes {
		part(t, w.machine, bpf.MargayMapOutcomes, slot, []bpf.Outcome{{Action: bpf.RuleDeny, Id: 100}, {Action: bpf.RuleAllow, Id: 101, Rule: 3}})
	}
	s := bpf.Slot{Rows: 2, Columns: 1, Blocks: 1, Sports: 1}
	if change != nil {
		change(&s)
	}
	w.put(t, bpf.MargayMapSlots, slot, s)
}

// TestATableWithAPartMissingDenies, and says so.
func TestATableWithAPartMissingDenies(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	frame := udp(v4.a, v4.out, 1000, 53).Bytes()
	missing := bpf.MargayDropReasonDROP_NO_TABLE
	w.table(t, 20, "", nil)
	w.publish(t, w.a, word(20, 2), word(20, 2))
	w.fromPod(t, w.podA, frame).want(t, 0)
	for i, name := range []string{bpf.MargayMapL4, bpf.MargayMapRows, bpf.MargayMapRowblk, bpf.MargayMapCells, bpf.MargayMapOutcomes} {
		t.Run(name, func(t *testing.T) {
			w.reset(t)
			slot := uint32(21 + i)
			w.table(t, slot, name, nil)
			w.publish(t, w.a, word(slot, 2), word(slot, 2))
			w.fromPod(t, w.podA, frame).want(t, missing)
			w.toPod(t, w.podA, outside, udp(v4.out, v4.a, 1000, 53).Bytes()).want(t, missing)
			w.noFlow(t)
		})
	}
	t.Run("class beyond the rows", func(t *testing.T) {
		w.reset(t)
		w.address(t, v4.other, bpf.AddrInfo{Class: 64})
		w.publish(t, w.a, word(20, 2), word(20, 2))
		w.fromPod(t, w.podA, udp(v4.a, v4.other, 1000, 53).Bytes()).want(t, missing)
	})
	for name, change := range map[string]func(s *bpf.Slot){
		"more columns than blocks":        func(s *bpf.Slot) { s.Blocks = 64 },
		"source port pages not there":     func(s *bpf.Slot) { s.Flags, s.Sports = bpf.SlotSourcePorts, 1<<30 },
		"interpreted without rules":       func(s *bpf.Slot) { s.Flags = bpf.SlotInterpret },
		"interpreted without its rules":   func(s *bpf.Slot) { s.Flags, s.Rules = bpf.SlotInterpret, 5 },
		"wide without heads":              func(s *bpf.Slot) { s.Flags, s.Heads = bpf.SlotWide, 5 },
		"interpreted with too many rules": func(s *bpf.Slot) { s.Flags, s.Rules = bpf.SlotInterpret, 1<<31 },
	} {
		t.Run(name, func(t *testing.T) {
			w.reset(t)
			w.table(t, 30, "", change)
			w.publish(t, w.a, word(30, 2), word(30, 2))
			if r := w.fromPod(t, w.podA, frame); name != "source port pages not there" && r.reason() != missing {
				t.Errorf("action %d, reason %s", r.action, bpf.Label(r.reason()))
			}
		})
	}
}

// TestAWideTable looks for the column among the exceptions of a row, and then in its base.
func TestAWideTable(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	frame := udp(v4.a, v4.out, 1000, 53).Bytes()
	for i, c := range []struct {
		name       string
		exceptions []uint16 // column, outcome
		change     func(s *bpf.Slot)
		want       bpf.DropReason
	}{
		{"the base allows", nil, nil, 0},
		{"exceptions of other columns", []uint16{1, 0, 2, 0, 3, 0}, nil, 0},
		{"the only exception", []uint16{0, 0}, nil, bpf.MargayDropReasonDROP_POLICY},
		{"the first of many", []uint16{0, 0, 1, 1, 2, 1, 3, 1, 4, 1}, nil, bpf.MargayDropReasonDROP_POLICY},
		{"no heads", nil, func(s *bpf.Slot) { s.Heads = 5 }, bpf.MargayDropReasonDROP_NO_TABLE},
		{"no exceptions where some should be", []uint16{1, 0}, func(s *bpf.Slot) { s.Exceptions = 5 }, bpf.MargayDropReasonDROP_NO_TABLE},
		{"an exception without outcome", []uint16{0, 9}, nil, bpf.MargayDropReasonDROP_NO_TABLE},
	} {
		t.Run(c.name, func(t *testing.T) {
			slot := uint32(40 + i)
			w.table(t, slot, "", func(s *bpf.Slot) {
				s.Flags, s.Heads, s.Exceptions = bpf.SlotWide, 1, 2
				if c.change != nil {
					c.change(s)
				}
			})
			heads := bpf.CellBlock{Cell: [32]uint16{4: 1, 7: uint16(len(c.exceptions) / 2)}}
			part(t, w.machine, bpf.MargayMapRowblk, slot, []bpf.CellBlock{{Cell: [32]uint16{0, 1}}, heads})
			exceptions := bpf.CellBlock{}
			copy(exceptions.Cell[:], c.exceptions)
			allow := bpf.CellBlock{Cell: [32]uint16{0: 1}}
			part(t, w.machine, bpf.MargayMapCells, slot, []bpf.CellBlock{{}, allow, exceptions})
			w.reset(t)
			w.publish(t, w.a, word(slot, uint32(i)+2), word(slot, uint32(i)+2))
			w.fromPod(t, w.podA, frame).want(t, c.want)
		})
	}
}

// TestOneSidesRevocationIsBothSides: on one node the sender's next packet meets what the receiver's policy has revoked.
func TestOneSidesRevocationIsBothSides(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, l4 := range []string{"tcp", "udp"} {
		w.eachFamily(t, l4, func(t *testing.T, f family) {
			packet := func(flags uint8) testutil.Packet {
				if l4 == "udp" {
					return udp(f.a, f.b, 1000, 80)
				}
				return tcp(f.a, f.b, 1000, 80, flags)
			}
			w.fromPod(t, w.podA, packet(syn).Bytes()).want(t, 0)
			w.toPod(t, w.podB, w.podA, packet(syn).Bytes()).want(t, 0)
			w.publish(t, w.b, word(slotDeny, 2), word(slotAllow, 2))
			w.fromPod(t, w.podA, packet(ack).Bytes()).want(t, 0)
			r := w.toPod(t, w.podB, w.podA, packet(ack).Bytes())
			if r.reason() != bpf.MargayDropReasonDROP_REVOKED {
				t.Errorf("reason %s", bpf.Label(r.reason()))
			}
			if l4 == "udp" {
				w.forbidden(t)
				// Its answer is still under way: the receiver may send, but it opens nothing.
				answer := udp(f.b, f.a, 80, 1000).Bytes()
				w.fromPod(t, w.podB, answer).want(t, bpf.MargayDropReasonDROP_POLICY)
				w.fromPod(t, w.podA, packet(0).Bytes()).want(t, 0)
				w.fromPod(t, w.podB, answer).want(t, bpf.MargayDropReasonDROP_POLICY)
				w.publish(t, w.b, word(slotAllow, 3), word(slotAllow, 3))
				w.fromPod(t, w.podB, answer).want(t, 0)
				return
			}
			if fl := w.flow(t); !fl.has(revoked) {
				t.Errorf("flow %+v, want it revoked", fl)
			}
			if r := w.fromPod(t, w.podA, packet(ack).Bytes()); r.reason() != bpf.MargayDropReasonDROP_REVOKED {
				t.Errorf("the sender's next packet: %s", bpf.Label(r.reason()))
			}
			// Allowed again, it stays cut until it is opened anew.
			w.publish(t, w.b, word(slotAllow, 3), word(slotAllow, 3))
			if r := w.fromPod(t, w.podA, packet(ack).Bytes()); r.reason() != bpf.MargayDropReasonDROP_REVOKED {
				t.Errorf("after it was allowed again: %s", bpf.Label(r.reason()))
			}
			w.fromPod(t, w.podA, packet(syn).Bytes()).want(t, 0)
			w.toPod(t, w.podB, w.podA, packet(syn).Bytes()).want(t, 0)
			if fl := w.flow(t); fl.has(revoked) || fl.entry.Ingress != 3 {
				t.Errorf("opened anew: %s", fmt.Sprintf("%+v", fl))
			}
		})
	}
}
