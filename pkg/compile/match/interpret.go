package match

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// NoRule is the Outcome.Rule of a verdict that no entry of the match table reached: deny.
const NoRule = 0xffff

// NoOutcome is the outcome for a packet that no table has an entry for: deny.
func NoOutcome() bpf.Outcome { return bpf.Outcome{Rule: NoRule, Action: bpf.RuleDeny} }

// Interpret walks the match table as the interpreter in the kernel does, for a packet whose remote address is of class
// c. Every decision table must agree with it.
func (p *Program) Interpret(c classes.Class, pkt model.Packet) bpf.Outcome {
	index, key := L4Key(pkt)
	var trace bpf.Outcome
	for i := 0; i < len(p.Rules); {
		r := &p.Rules[i]
		if !entryMatches(r, c, pkt, index, key) {
			i++
			continue
		}
		next, done := Step(&trace, r, i)
		if done {
			return trace
		}
		i = next
	}
	return NoOutcome()
}

// Step does what a matching entry says: it notes it in the trace and returns the next entry to try, or says that the
// trace is the outcome.
func Step(trace *bpf.Outcome, r *bpf.Rule, i int) (next int, done bool) {
	switch r.Action {
	case bpf.RuleLog:
		if int(trace.Nlogs) < len(trace.Log) {
			trace.Log[trace.Nlogs] = uint16(i)
		}
		if trace.Nlogs < 0xff {
			trace.Nlogs++
		}
		return i + 1, false
	case bpf.RulePass:
		if int(trace.Npasses) < len(trace.Pass) {
			trace.Pass[trace.Npasses] = uint16(i)
		}
		if trace.Npasses < 0xff {
			trace.Npasses++
		}
		return int(r.Jump), false
	case bpf.RuleSkip:
		return int(r.Jump), false
	}
	trace.Id, trace.Rule, trace.Action = r.Id, uint16(i), r.Action
	return 0, true
}

func entryMatches(r *bpf.Rule, c classes.Class, pkt model.Packet, index int, key uint16) bool {
	if c.Family == 4 && r.Flags&bpf.RuleV4 == 0 || c.Family == 6 && r.Flags&bpf.RuleV6 == 0 {
		return false
	}
	if r.Flags&bpf.RuleProto != 0 && r.Proto != pkt.Protocol || r.Flags&bpf.RuleNotProto != 0 && r.Proto == pkt.Protocol {
		return false
	}
	if r.Ndports > 0 && !inRanges(dports(r), key) || r.Nsports > 0 && !inRanges(sports(r), SourceKey(pkt, index)) {
		return false
	}
	return c.HasAll(r.In[:]) && c.HasNone(r.NotIn[:])
}

// SourceKey is the source port as the tables know it: 0 if the protocol has none.
func SourceKey(pkt model.Packet, index int) uint16 {
	if index > bpf.L4SCTP {
		return 0
	}
	return pkt.SrcPort
}

// dports and sports list an entry's ranges.
func dports(r *bpf.Rule) []model.PortRange {
	out := make([]model.PortRange, 0, len(r.Dport))
	for _, x := range r.Dport[:r.Ndports] {
		out = append(out, model.PortRange{Lo: x.Lo, Hi: x.Hi})
	}
	return out
}

func sports(r *bpf.Rule) []model.PortRange {
	out := make([]model.PortRange, 0, len(r.Sport))
	for _, x := range r.Sport[:r.Nsports] {
		out = append(out, model.PortRange{Lo: x.Lo, Hi: x.Hi})
	}
	return out
}

func inRanges(ranges []model.PortRange, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r model.PortRange) bool { return r.Contains(port) })
}

// Verdict names the rules behind an outcome of this Program. Of passes and logs it has as many as the outcome kept;
// NPasses and NLogs say how many there were. An outcome no entry is behind is a denial by the zero RuleID.
func (p *Program) Verdict(o bpf.Outcome) model.Verdict {
	v := model.Verdict{Allow: o.Action == bpf.RuleAllow, By: p.id(o.Rule)}
	for _, i := range o.Pass[:min(int(o.Npasses), len(o.Pass))] {
		v.Passed = append(v.Passed, p.id(i))
	}
	for _, i := range o.Log[:min(int(o.Nlogs), len(o.Log))] {
		v.Logged = append(v.Logged, p.id(i))
	}
	return v
}

func (p *Program) id(entry uint16) model.RuleID {
	if int(entry) >= len(p.IDs) {
		return model.RuleID{}
	}
	return p.IDs[entry]
}
