package calc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Who is left out depends on what there is alone, everybody whose lot changes is named, and no more counts than may.
func TestAllotmentDependsOnStateNotOnHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newAllotment(10)
		sizes, out := map[string]int{}, map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			name, size := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"), rapid.IntRange(0, 12).Draw(t, "size")
			l.note("evil", name, size)
			changed := slices.DeleteFunc(l.decide("evil"), func(other string) bool { return other == name })
			if sizes[name] = size; size == 0 {
				delete(sizes, name)
			}
			for _, other := range changed {
				out[other] = !out[other]
			}
			out[name] = l.isOut("evil", name)
			again, sum := newAllotment(10), 0
			for _, n := range []string{"d", "c", "b", "a"} {
				again.note("evil", n, sizes[n])
			}
			again.decide("evil")
			for _, n := range []string{"a", "b", "c", "d"} {
				if !l.isOut("evil", n) {
					sum += sizes[n]
				}
				if l.isOut("evil", n) != out[n] || l.isOut("evil", n) != again.isOut("evil", n) {
					t.Fatalf("%v: %s is left out: %t, said to be: %t, of these alone: %t", sizes, n, l.isOut("evil", n), out[n], again.isOut("evil", n))
				}
			}
			if sum > 10 || l.isOut("shop", name) {
				t.Fatalf("%v: %d count", sizes, sum)
			}
		}
		for name := range sizes {
			l.note("evil", name, 0)
		}
		if len(l.by) > 0 {
			t.Fatalf("something stays behind: %v", l.by)
		}
	})
}

func evilService(name string, first, n int) model.ServiceUpdate {
	s := &model.Service{Cluster: addrs(fmt.Sprintf("10.96.0.%d", first+1))}
	for i := range n {
		s.External = append(s.External, netip.AddrFrom4([4]byte{203, byte(first), byte(i >> 8), byte(i)}))
	}
	return model.ServiceUpdate{Key: model.ServiceKey{Namespace: "evil", Name: name}, Service: s}
}

// Whoever may write Services may write external addresses by the ten thousand, which take room in the map that everybody's
// pods are in.
func TestExternalAddressesOfOneNamespaceAreBounded(t *testing.T) {
	r := newRig(t, evilService("a", 0, 10), evilService("b", 1, MaxExternal-10))
	others := model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "a"}, Service: &model.Service{External: addrs("198.51.100.1")}}
	count := func(what string, cluster, external int, reported string) {
		t.Helper()
		if got := len(r.dp.Sets[model.SetServiceAddrs]); got != cluster+external {
			t.Errorf("%s: %d addresses, want %d and %d", what, got, cluster, external)
		}
		var names []string
		for c := range r.graph.ServiceClaims() {
			if !c.Addr.IsValid() {
				names = append(names, c.Service.Name)
			}
		}
		if got := strings.Join(names, " "); got != reported {
			t.Errorf("%s: reported %q, want %q", what, got, reported)
		}
	}
	count("all there is room for", 2, MaxExternal, "")
	r.apply(evilService("c", 2, 20), others)
	count("one too many", 3, 31, "b")
	r.apply(evilService("b", 1, 100))
	count("room for all", 3, 131, "")
	r.apply(evilService("b", 1, 80_000))
	count("too large alone", 3, 31, "b")
	r.apply(model.Absent(evilService("b", 1, 0)), model.Absent(evilService("a", 0, 0)), model.Absent(evilService("c", 2, 0)))
	count("none", 0, 1, "")
}

// Whoever writes a network set is charged for it, not those whose selectors find it.
func TestPrefixesOfOneNamespacesNetworkSetsAreBounded(t *testing.T) {
	nets := func(namespace, name string, first byte, n int) model.NetworkSetUpdate {
		s := &model.NetworkSet{Labels: map[string]string{"in": "sets"}}
		for i := range n {
			s.Nets = append(s.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
		}
		return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: namespace, Name: name}, Set: s}
	}
	p := selecting("shop", "p", 0, 1)
	p.Policy.Ingress[0].Source.Selector = sel("in == 'sets'")
	r := newRig(t, pod("shop/a", "10.0.0.2"), p, nets("evil", "a", 1, 10), nets("evil", "b", 2, MaxNetworkSetNets), nets("shop", "a", 3, 10))
	members := func() int {
		for id, m := range r.dp.Sets {
			if strings.HasPrefix(string(id), string(kindSelector)+":") {
				return len(m)
			}
		}
		return -1
	}
	if n := members(); n != 20 {
		t.Errorf("%d prefixes, want those of evil/a and shop/a", n)
	}
	if p := fmt.Sprint(r.graph.Problems()); !strings.Contains(p, "NetworkSet evil/b") {
		t.Errorf("problems: %s", p)
	}
	r.apply(nets("evil", "b", 2, 5))
	if n := members(); n != 25 {
		t.Errorf("%d prefixes once there is room, want 25", n)
	}
}
