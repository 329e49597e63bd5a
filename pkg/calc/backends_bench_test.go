package calc

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// EndpointSlices of a Service that a rule names, whose author changes them: one address, all ports of one object or of two that overlap,
// one of very many objects, or all of these.
func BenchmarkBackendsChange(b *testing.B) {
	large, overlaps, ports := backendsOf("shop/web", "a", 10, 1000, 100), backendsOf("shop/web", "b", 10, 300, 100), backendsOf("shop/web", "a", 10, 32, 2000)
	small := smallSlices(2000)
	fewer := small[0]
	fewer.Slice = &model.EndpointSlice{Service: fewer.Slice.Service, Addrs: fewer.Slice.Addrs[:60], Ports: fewer.Slice.Ports}
	for _, c := range []struct {
		name   string
		before []model.EndpointSliceUpdate
		after  []model.EndpointSliceUpdate
	}{
		{"address", []model.EndpointSliceUpdate{large}, []model.EndpointSliceUpdate{backendsOf("shop/web", "a", 10, 999, 100)}},
		{"ports", []model.EndpointSliceUpdate{large}, moved(large)},
		{"2000-ports", []model.EndpointSliceUpdate{ports}, moved(ports)},
		{"two", []model.EndpointSliceUpdate{large, overlaps}, moved(large, overlaps)},
		{"one-of-two", []model.EndpointSliceUpdate{large, overlaps}, moved(large)},
		{"one-of-2000", small, []model.EndpointSliceUpdate{fewer}},
		{"all-of-2000", small, moved(small...)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			g := New(thisNode)
			g.Apply([]model.Update{namespace("shop", "env", "x"), benchLocalPod(), toService(model.Allow, "shop/web"), model.InSync{}})
			turns := [2][]model.Update{updatesOf(c.before), updatesOf(c.after)}
			g.Apply(turns[0])
			g.Flush()
			for i := 1; b.Loop(); i++ {
				g.Apply(turns[i%2])
				g.Flush()
			}
		})
	}
}

func updatesOf(slices []model.EndpointSliceUpdate) (all []model.Update) {
	for _, u := range slices {
		all = append(all, u)
	}
	return all
}

// smallSlices are n objects of the Service shop/web of 64 addresses with a port.
func smallSlices(n int) (all []model.EndpointSliceUpdate) {
	for i := range n {
		u := backendsOf("shop/web", fmt.Sprint(i), 10, 64, 1)
		for k := range u.Slice.Addrs {
			u.Slice.Addrs[k] = netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(k)})
		}
		all = append(all, u)
	}
	return all
}

// moved are the objects with other ports.
func moved(slices ...model.EndpointSliceUpdate) (all []model.EndpointSliceUpdate) {
	for _, u := range slices {
		s := *u.Slice
		s.Ports = nil
		for _, p := range u.Slice.Ports {
			p.Port += uint16(len(u.Slice.Ports))
			s.Ports = append(s.Ports, p)
		}
		all = append(all, model.EndpointSliceUpdate{ID: u.ID, Slice: &s})
	}
	return all
}

// benchLocalPod is a pod of this node in the namespace shop.
func benchLocalPod() model.EndpointUpdate {
	u := benchPod(0, 100)
	u.ID.Namespace, u.Endpoint.Node = "shop", thisNode
	u.Endpoint.Labels[selector.NamespaceLabel] = "shop"
	return u
}
