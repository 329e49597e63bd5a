package explain_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// What is said of a range of ports is what is said of each port of it that is asked for alone.
func TestEachPortOfARangeIsJudgedAsItIsAlone(t *testing.T) {
	ranges, mixed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		updates := corpus.DrawModel(t)
		state, probes := explain.NewState(updates), corpus.DrawProbes(t, updates)
		for _, p := range sample(probes, 6) {
			r := explain.Request{Src: p.Packet.Src.String(), Dst: p.Packet.Dst.String(), SourcePort: explain.DefaultSourcePort}
			if model.HasPorts(p.Packet.Protocol) {
				r.SourcePort = p.Packet.SrcPort
			}
			every, err := state.Explain(r)
			if err != nil {
				continue // explain refuses addresses that no packet has
			}
			if ranges += len(every.Ports); every.Verdict == explain.VerdictMixed {
				mixed++
			}
			for _, other := range sample(probes, 40) {
				if r.Protocol, r.Port = other.Packet.Protocol, other.Packet.DstPort; r.Port > 0 {
					isJudgedAlone(t, state, r, every.Ports)
				}
			}
		}
	})
	if ranges == 0 || mixed == 0 {
		t.Errorf("%d ranges, %d pairs of ends of which some ports are allowed", ranges, mixed)
	}
}

func isJudgedAlone(t *rapid.T, state *explain.State, r explain.Request, ranges []explain.PortVerdict) {
	alone, err := state.Explain(r)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ranges, func(v explain.PortVerdict) bool {
		return v.Protocol == explain.ProtocolName(r.Protocol) && v.From <= r.Port && r.Port <= v.To
	})
	if i < 0 {
		t.Fatalf("%+v: the port is in none of the ranges %+v", r, ranges)
	}
	if v := ranges[i]; v.Verdict != alone.Verdict || v.Egress.String() != alone.Egress.String() || v.Ingress.String() != alone.Ingress.String() {
		t.Fatalf("%+v: %s, %s, %s; of its range it is said: %+v", r, alone.Verdict, alone.Egress, alone.Ingress, v)
	}
}
