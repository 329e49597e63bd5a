package iptables

import (
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
)

// Totals never fall: a chain that was written again counts from 0, and one that is gone leaves what it has counted.
func TestTotalsOfDropsNeverFall(t *testing.T) {
	c := &Counters{seen: map[counted]ruleset.Counter{}, totals: map[dropKind]ruleset.Counter{}}
	policy := dropKind{bpf.MargayDropReasonDROP_POLICY, model.Ingress}
	a, b := counted{4, "mgyA-s1", policy}, counted{4, "mgyA-s2", policy}
	for i, test := range []struct {
		now  map[counted]ruleset.Counter
		want ruleset.Counter
	}{
		{map[counted]ruleset.Counter{a: {Packets: 3, Bytes: 300}}, ruleset.Counter{Packets: 3, Bytes: 300}},
		{map[counted]ruleset.Counter{a: {Packets: 5, Bytes: 500}, b: {Packets: 1, Bytes: 100}}, ruleset.Counter{Packets: 6, Bytes: 600}},
		{map[counted]ruleset.Counter{a: {Packets: 2, Bytes: 200}, b: {Packets: 1, Bytes: 100}}, ruleset.Counter{Packets: 8, Bytes: 800}}, // a was written again
		{map[counted]ruleset.Counter{b: {Packets: 2, Bytes: 200}}, ruleset.Counter{Packets: 9, Bytes: 900}},
		{map[counted]ruleset.Counter{b: {Packets: 2, Bytes: 200}}, ruleset.Counter{Packets: 9, Bytes: 900}},
	} {
		if c.add(test.now); c.totals[policy] != test.want {
			t.Errorf("after reading %d: %+v, want %+v", i, c.totals[policy], test.want)
		}
	}
}

// Every chain whose drops are counted is there, and a denial counts for the direction of its slot.
func TestRulesThatDropHaveAReason(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	tables, err := ruleset.Parse(n.tables.Save(4, "mangle"))
	if err != nil {
		t.Fatal(err)
	}
	names := n.state.world.names[4]
	for name := range droppers {
		if tables[0].Chain(names.Chain(name)) == nil {
			t.Errorf("there is no chain %s", name)
		}
	}
	kinds := map[dropKind]bool{}
	eachDrop(&tables[0], names, func(_ string, kind dropKind, _ ruleset.Counter) { kinds[kind] = true })
	for _, kind := range []dropKind{
		{bpf.MargayDropReasonDROP_POLICY, model.Ingress}, {bpf.MargayDropReasonDROP_POLICY, model.Egress},
		{bpf.MargayDropReasonDROP_NO_TABLE, model.Ingress}, {bpf.MargayDropReasonDROP_NO_TABLE, model.Egress},
		{bpf.MargayDropReasonDROP_SPOOFED, model.Egress}, {bpf.MargayDropReasonDROP_NO_ENDPOINT, model.Ingress},
		{bpf.MargayDropReasonDROP_REVOKED, model.Egress},
	} {
		if !kinds[kind] {
			t.Errorf("nothing counts for %s, %s", bpf.Label(kind.reason), kind.direction)
		}
	}
}
