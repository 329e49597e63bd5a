package iptables

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset/walk"
	"github.com/margay-project/margay/pkg/verify"
)

// Destinations implements verify.Policy. The source of an answer is the destination of the packet it answers.
func (p *slotPolicy) Destinations(a verify.Axis) []verify.Run {
	switch {
	case a == verify.AxisOther:
		return p.runs(0, walk.Protocols, walk.Protocols)
	case a > verify.AxisSCTP:
		return p.runs(protocolOf[a], walk.Types, walk.Types)
	}
	return p.runs(protocolOf[a], walk.DstPorts, walk.SrcPorts)
}

// Sources implements verify.Policy.
func (p *slotPolicy) Sources(a verify.Axis) []verify.Run {
	return p.runs(protocolOf[a], walk.SrcPorts, walk.DstPorts)
}

var protocolOf = map[verify.Axis]uint8{verify.AxisTCP: model.ProtoTCP, verify.AxisUDP: model.ProtoUDP, verify.AxisSCTP: model.ProtoSCTP,
	verify.AxisICMP: model.ProtoICMP, verify.AxisICMPv6: model.ProtoICMPv6}

// runs returns the ranges of values within which all rules of a slot match alike.
func (p *slotPolicy) runs(protocol uint8, opened, answered walk.Field) []verify.Run {
	at := []uint32{0}
	for _, s := range p.of {
		for evaluator, field := range [2]walk.Field{opened, answered} {
			for _, t := range s.tests[evaluator] {
				if t.Field != field || t.Protocol != protocol {
					continue
				}
				at = append(at, uint32(t.Low), uint32(t.High)+1)
				if evaluator == asAnswered && field == walk.Types {
					at = append(at, answeredBy(protocol, t)...)
				}
			}
		}
	}
	slices.Sort(at)
	at = slices.DeleteFunc(slices.Compact(at), func(n uint32) bool { return n > 0xffff })
	runs := make([]verify.Run, len(at))
	for i, lo := range at {
		runs[i] = verify.Run{Lo: uint16(lo), Hi: 0xffff, Column: uint32(i)}
		if i > 0 {
			runs[i-1].Hi = uint16(lo - 1)
		}
	}
	return runs
}

// answeredBy returns the places at which a test of answers begins and ends to hold, as types and codes of the packets they answer.
func answeredBy(protocol uint8, t walk.Test) (at []uint32) {
	for request, reply := range replies[protocol] {
		lo, hi := uint32(t.Low), uint32(t.High)
		if uint32(reply) == lo>>8 {
			at = append(at, uint32(request)<<8|lo&0xff, uint32(request)<<8|lo&0xff+hi-lo+1)
		}
	}
	return at
}
