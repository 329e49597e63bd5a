package corpus

import (
	"fmt"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// crowdName is the name to which Crowd gives very many numbers.
const crowdName = "http"

// Crowd adds to a drawn model pods of one namespace that give a name of ports about as many numbers as count (§7), and a policy
// with rules that name it.
func Crowd(t *rapid.T, updates []model.Update) []model.Update {
	updates = slices.Clone(updates[:len(updates)-1]) // without InSync
	namespace := one(t, namespaces, "crowded namespace")
	total := rapid.IntRange(120, 140).Draw(t, "numbers of the crowd")
	for i := range 2 {
		e := &model.Endpoint{
			Node: "node0", Iface: fmt.Sprintf("crowd%d", i), Profiles: []string{"kns." + namespace},
			Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i)})},
			Labels: map[string]string{"projectcalico.org/namespace": namespace, "a": one(t, labelValues, "label of the crowd")},
		}
		first := uint16(rapid.SampledFrom([]uint16{50, 75, 200, 8000}).Draw(t, "first number"))
		for n := range total / 2 {
			protocol := uint8(model.ProtoTCP)
			if n%3 == 2 {
				protocol = model.ProtoUDP
			}
			e.Ports = append(e.Ports, model.NamedPort{Name: crowdName, Protocol: protocol, Port: first + uint16(n+i*total/2)})
		}
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID(namespace, fmt.Sprintf("crowd%d", i)), Endpoint: e})
	}
	p := &model.Policy{Tier: "t1", Order: 1, Selector: drawSelector(t), AppliesIngress: true, AppliesEgress: true}
	for dir, list := range []*[]model.Rule{&p.Ingress, &p.Egress} {
		for i := range upTo(t, 1, 3, "rules of the crowd") {
			r := drawRule(t, model.Direction(dir))
			r.Index, r.Unmatchable = i, ""
			sides := []*model.Entity{&r.Source, &r.Destination}
			if !chance(t, 3, "both sides") {
				sides = []*model.Entity{one(t, sides, "side")}
			}
			for _, side := range sides {
				if side.Service == nil && side.Nodes == nil && (r.Protocol == nil || model.HasPorts(*r.Protocol)) {
					if chance(t, 3, "negated") {
						side.NotNamedPorts = []string{crowdName}
					} else {
						side.NamedPorts = []string{crowdName}
					}
				}
			}
			*list = append(*list, r)
		}
	}
	key := model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "crowd"}
	return append(updates, model.PolicyUpdate{Key: key, Policy: p}, model.InSync{})
}

// CrowdProbes draws packets between the endpoints and the pods that Crowd made, at numbers that they declare.
func CrowdProbes(t *rapid.T, updates []model.Update) (probes []Probe) {
	var crowd, all []model.EndpointUpdate
	var declared []model.NamedPort
	h := collectHints(updates)
	for _, u := range updates {
		e, ok := u.(model.EndpointUpdate)
		if !ok || e.Endpoint == nil || len(h.own(e.ID)) == 0 {
			continue
		}
		all = append(all, e)
		if len(e.Endpoint.Ports) > len(numbers) {
			crowd, declared = append(crowd, e), append(declared, e.Endpoint.Ports...)
		}
	}
	slices.SortFunc(declared, func(a, b model.NamedPort) int {
		return int(a.Protocol)<<16 + int(a.Port) - int(b.Protocol)<<16 - int(b.Port)
	})
	ports := append(rapid.SliceOfN(rapid.SampledFrom(declared), 1, 4).Draw(t, "ports"), declared[0], declared[len(declared)-1])
	for _, of := range crowd {
		for _, e := range all {
			for _, port := range ports {
				for _, number := range []uint16{port.Port, 9} {
					pkt := model.Packet{Protocol: port.Protocol, SrcPort: number, DstPort: number}
					own, theirs := h.own(e.ID)[0], h.own(of.ID)[0]
					probes = append(probes, probe(e.ID, model.Ingress, pkt, theirs, own), probe(e.ID, model.Egress, pkt, own, theirs),
						probe(of.ID, model.Ingress, pkt, own, theirs), probe(of.ID, model.Egress, pkt, theirs, own))
				}
			}
		}
	}
	return slices.DeleteFunc(probes, func(p Probe) bool { return p.Packet.Src.Is4() != p.Packet.Dst.Is4() })
}
