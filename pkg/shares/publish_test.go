package shares

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// Addresses of endpoints that have left are remembered until an endpoint or the node has them, the latest ones.
func TestAddressesThatWereLeftAreRemembered(t *testing.T) {
	p, node, now := &Publisher{}, addrs("10.0.0.1"), map[string]Endpoint{}
	add := func(name, iface string, list ...netip.Addr) {
		now[name] = Endpoint{ID: model.WorkloadID("shop", name), Iface: iface, Addrs: list}
	}
	publish := func(read func(uint32) Mark) {
		var list []Endpoint
		for _, e := range now {
			list = append(list, e)
		}
		p.Publish(Known{Endpoints: list, Node: node, Read: read})
	}
	want := func(when string, list ...string) {
		t.Helper()
		publish(nil)
		if !slices.Equal(p.left, addrs(list...)) || len(p.Ends().left) != len(list) {
			t.Errorf("%s: %v, want %v; published %v", when, p.left, list, p.Ends().left)
		}
	}
	add("a", "cali1", addrs("10.0.0.2", "10.0.0.3")...)
	add("b", "cali2", addrs("10.0.0.4")...)
	want("nothing has left")
	add("a", "cali1", addrs("10.0.0.2")...)
	want("an address less", "10.0.0.3")
	delete(now, "b")
	want("an endpoint less", "10.0.0.3", "10.0.0.4")
	add("c", "cali3", addrs("10.0.0.3")...)
	want("another endpoint has an address", "10.0.0.4")
	node = addrs("10.0.0.1", "10.0.0.4")
	want("the node has it")
	delete(now, "c")
	want("the other is gone", "10.0.0.3")
	var many []netip.Addr
	for i := range mostLeft + 1 {
		many = append(many, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	add("many", "cali4", many...)
	want("more than are remembered are there", "10.0.0.3")
	delete(now, "many")
	publish(nil)
	if len(p.left) != mostLeft || slices.Contains(p.left, netip.MustParseAddr("10.0.0.3")) {
		t.Errorf("%d addresses are remembered", len(p.left))
	}
	publish(func(uint32) Mark { return Mark{} })
	if len(p.Ends().left) > 0 {
		t.Error("addresses that were left count although marks show what policy has judged")
	}
}

// A Publisher knows what it has published, so that a loop publishes changes alone.
func TestAPublisherKnowsWhatItHasPublished(t *testing.T) {
	p, node := &Publisher{}, addrs("10.0.0.1")
	e := Endpoint{ID: idA, Iface: "cali1", Addrs: addrs("10.0.0.2"), Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Open: true}
	if p.Ends() != nil || p.IsNode(nil) || p.Has(e) || p.Len() != 0 {
		t.Error("something is published at the start")
	}
	p.Publish(Known{Endpoints: []Endpoint{e}, Node: node})
	node[0] = netip.MustParseAddr("10.0.0.9")
	if p.Ends() == nil || !p.IsNode(addrs("10.0.0.1")) || p.IsNode(node) || !p.Has(e) || p.Len() != 1 {
		t.Error("what was published is not known")
	}
	for what, change := range map[string]func(*Endpoint){
		"id":        func(e *Endpoint) { e.ID = idB },
		"interface": func(e *Endpoint) { e.Iface = "cali2" },
		"addresses": func(e *Endpoint) { e.Addrs = addrs("10.0.0.3") },
		"sources":   func(e *Endpoint) { e.Sources = nil },
		"open":      func(e *Endpoint) { e.Open = false },
	} {
		other := e
		if change(&other); p.Has(other) {
			t.Errorf("another %s counts as published", what)
		}
	}
}
