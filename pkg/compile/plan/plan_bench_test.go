package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// benchCluster has 600 sets, 100,000 pods in 27 of them each, and 100 local endpoints of 30 rules that share 20
// policies.
func benchCluster() *cluster {
	const pods, sets, each, locals, policies = 100_000, 600, 27, 100, 20
	c := newCluster()
	members := make([][]netip.Prefix, sets)
	for i := range pods {
		kind := i % 2000 // pods of one kind are in the same sets
		for n := range each {
			s := (kind*7 + n*n*13 + n) % sets
			members[s] = append(members[s], benchPod(i))
		}
	}
	for s, m := range members {
		c.sets[benchSet(s)] = compactPods(m)
	}
	var shared [policies][2]*model.DirectionPolicy
	for i := range shared {
		var in, out []model.MatchRule
		for n := range 30 {
			side := model.Side{In: []model.SetID{benchSet((i*30 + n) % sets)}}
			port := &model.PortMatch{Ranges: []model.PortRange{{Lo: uint16(8000 + n), Hi: uint16(8000 + n)}}}
			in = append(in, model.MatchRule{Action: model.Allow, Protocol: &tcp, Source: side, Destination: model.Side{Ports: port}})
			side.Ports = port
			out = append(out, model.MatchRule{Action: model.Allow, Protocol: &tcp, Destination: side})
		}
		shared[i] = [2]*model.DirectionPolicy{policyOfRules(model.Ingress, in...), policyOfRules(model.Egress, out...)}
	}
	for i := range locals {
		e := endpointPolicy(fmt.Sprint("local", i), shared[i%policies][0], shared[i%policies][1], benchPod(i).Addr().String())
		c.endpoints[e.ID] = e
	}
	return c
}

var tcp = model.ProtoTCP

func benchSet(i int) model.SetID { return model.SetID(fmt.Sprint("set", i)) }

func benchPod(i int) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24|uint32(i))
	return netip.PrefixFrom(netip.AddrFrom4(b), 32)
}

// compactPods removes duplicates that follow one another.
func compactPods(m []netip.Prefix) []netip.Prefix {
	out := m[:0]
	for i, p := range m {
		if i == 0 || p != m[i-1] {
			out = append(out, p)
		}
	}
	return out
}

func benchChanges(c *cluster) model.Changes {
	ch := model.Changes{Sets: map[model.SetID]*model.SetChange{}, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}, InSync: true}
	for id, m := range c.sets {
		ch.Sets[id] = &model.SetChange{Added: m}
	}
	for id, e := range c.endpoints {
		ch.Endpoints[id] = e
	}
	return ch
}

func BenchmarkFirstUpdate(b *testing.B) {
	ch := benchChanges(benchCluster())
	for b.Loop() {
		p := New(Options{}, nil).Update(ch)
		b.ReportMetric(float64(len(p.Addrs)), "addrs")
		b.ReportMetric(float64(len(p.Classes)), "classes")
		b.ReportMetric(float64(len(p.Tables)), "tables")
	}
}

func BenchmarkRestart(b *testing.B) {
	ch := benchChanges(benchCluster())
	k := newKernel()
	carryOut(k, New(Options{}, nil).Update(ch))
	s := k.snapshot(true)
	for b.Loop() {
		if p := New(Options{}, s).Update(ch); len(p.Bind) > 0 || len(p.Addrs) != 100 {
			b.Fatalf("%d bindings, %d addresses", len(p.Bind), len(p.Addrs))
		}
	}
}

// BenchmarkPodChangesItsLabels moves one pod from all of its sets to those of another pod, and back.
func BenchmarkPodChangesItsLabels(b *testing.B) {
	s := benchCluster()
	c := New(Options{}, nil)
	c.Update(benchChanges(s))
	there, back := benchMove(c, benchPod(50_000), benchPod(50_001))
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		ch := there
		if i%2 == 1 {
			ch = back
		}
		if p := c.Update(ch); len(p.Addrs) != 1 {
			b.Fatalf("%d addresses", len(p.Addrs))
		}
	}
}

// BenchmarkPodGetsSetsOfItsOwn moves one pod to sets no other pod has together, and back: a class comes and goes.
func BenchmarkPodGetsSetsOfItsOwn(b *testing.B) {
	s := benchCluster()
	c := New(Options{}, nil)
	c.Update(benchChanges(s))
	ch := func(add bool) model.Changes {
		m := &model.SetChange{Removed: []netip.Prefix{benchPod(50_000)}}
		if add {
			m = &model.SetChange{Added: m.Removed}
		}
		for i := 0; ; i++ {
			if _, in := memberOf(c, benchPod(50_000))[benchSet(i)]; !in {
				return model.Changes{Sets: map[model.SetID]*model.SetChange{benchSet(i): m}}
			}
		}
	}
	there, back := ch(true), ch(false)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			c.Update(there)
		} else {
			c.Update(back)
		}
	}
}

func memberOf(c *Compiler, p netip.Prefix) map[model.SetID]bool {
	in := map[model.SetID]bool{}
	for _, id := range c.Address(p.Addr()).Sets {
		in[id] = true
	}
	return in
}

func benchMove(c *Compiler, p, like netip.Prefix) (there, back model.Changes) {
	there.Sets, back.Sets = map[model.SetID]*model.SetChange{}, map[model.SetID]*model.SetChange{}
	from, to := memberOf(c, p), memberOf(c, like)
	one := []netip.Prefix{p}
	for id := range from {
		if !to[id] {
			there.Sets[id], back.Sets[id] = &model.SetChange{Removed: one}, &model.SetChange{Added: one}
		}
	}
	for id := range to {
		if !from[id] {
			there.Sets[id], back.Sets[id] = &model.SetChange{Added: one}, &model.SetChange{Removed: one}
		}
	}
	return there, back
}

// BenchmarkChangeBesideManyClasses changes the small policy of one endpoint where another's rules have made 24,000 classes.
func BenchmarkChangeBesideManyClasses(b *testing.B) {
	const rules = 24_000
	var many []model.MatchRule
	for i := range rules {
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>12), byte(i >> 4), byte(i << 4)}), 28)
		port := uint16(1 + i%65535)
		many = append(many, model.MatchRule{Action: model.Allow, Protocol: &tcp, Source: model.Side{Nets: []netip.Prefix{net}},
			Destination: model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: port, Hi: port}}}}})
	}
	small := func(port uint16) *model.DirectionPolicy {
		return policyOfRules(model.Ingress, model.MatchRule{Action: model.Allow, Protocol: &tcp,
			Destination: model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: port, Hi: port}}}}})
	}
	open := policyOfRules(model.Egress, model.MatchRule{Action: model.Allow})
	ch := model.Changes{Sets: map[model.SetID]*model.SetChange{}, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}, InSync: true}
	add := func(e *model.EndpointPolicy) { ch.Endpoints[e.ID] = e }
	add(endpointPolicy("tenant", policyOfRules(model.Ingress, many...), open, "10.0.0.1"))
	for i := range 100 {
		add(endpointPolicy(fmt.Sprint("p", i), small(uint16(1000+i)), open, fmt.Sprint("10.0.1.", i)))
	}
	c := New(Options{}, nil)
	c.Update(ch)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		e := endpointPolicy("p7", small(uint16(2000+i%2)), open, "10.0.1.7")
		p := c.Update(model.Changes{Endpoints: map[model.EndpointID]*model.EndpointPolicy{e.ID: e}, InSync: true})
		if len(p.Tables) != 1 {
			b.Fatalf("%d tables", len(p.Tables))
		}
	}
}
