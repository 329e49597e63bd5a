package lint

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// serviceRange holds, by family, the bits of the largest range that addresses of Services are given from. A network with fewer is not
// written for Services, though some are in it. The block of private addresses that is as large as the range is no exception.
// Source: the API server's --service-cluster-ip-range, and ServiceCIDR of networking.k8s.io/v1.
var serviceRange = [2]int{12, 64}

var privateBlock = netip.MustParsePrefix("172.16.0.0/12")

// translatedAddrs are addresses that the node translates before policy judges, and what there is besides.
type translatedAddrs struct {
	services map[netip.Addr]model.ServiceKey // all that are translated
	cluster  []netip.Addr                    // those that the cluster has given out, sorted
	others   []netip.Addr                    // of endpoints, nodes and backends, sorted
}

func (l *linter) translatedAddrs() *translatedAddrs {
	t := &translatedAddrs{services: map[netip.Addr]model.ServiceKey{}}
	for key, s := range l.graph.Services() {
		for _, a := range s.Addrs() {
			if old, ok := t.services[a]; !ok || key.String() < old.String() {
				t.services[a] = key
			}
		}
		t.cluster = append(t.cluster, s.Cluster...)
		for _, slice := range l.graph.Slices(key) {
			t.others = append(t.others, slice.Addrs...)
		}
	}
	for _, ep := range l.endpoints {
		t.others = append(t.others, ep.Addrs...)
	}
	for _, n := range l.nodes {
		t.others = append(t.others, n.Addrs...)
	}
	slices.SortFunc(t.cluster, netip.Addr.Compare)
	slices.SortFunc(t.others, netip.Addr.Compare)
	return t
}

// side looks for networks that are written for Services in one side of a rule. Such a side matches no packet: when policy judges, the
// address of the Service is replaced by the backend's.
func (t *translatedAddrs) side(name string, side *model.Entity) (finding string) {
	more := 0
	for _, n := range side.Nets {
		text := t.network(n, side.NotNets, name == "destination")
		switch {
		case text == "":
		case finding == "":
			finding = fmt.Sprintf("the %s %s %s; no packet has a Service's address when policy judges, so name the backends instead", name, n, text)
		default:
			more++
		}
	}
	if more > 0 {
		finding += fmt.Sprintf(" (so it is with %d more of its networks)", more)
	}
	return finding
}

// network says what a network has of Services if it is written for them; empty: it is not. Only a destination may be an external address.
func (t *translatedAddrs) network(n netip.Prefix, except []netip.Prefix, destination bool) string {
	if n.IsSingleIP() {
		key, ok := t.services[n.Addr()]
		_, given := slices.BinarySearchFunc(t.cluster, n.Addr(), netip.Addr.Compare)
		_, used := slices.BinarySearchFunc(t.others, n.Addr(), netip.Addr.Compare)
		if ok && !used && (given || destination) && !excepted(n.Addr(), except) {
			return "is the address of Service " + key.String()
		}
		return ""
	}
	if n.Bits() < serviceRange[family(n.Addr().Is6())] || n == privateBlock {
		return ""
	}
	of, ok := first(t.cluster, n, except)
	if _, used := first(t.others, n, except); !ok || used {
		return ""
	}
	return fmt.Sprintf("contains the address %s of Service %s and none of a pod or node", of, t.services[of])
}

// first returns the first of sorted addresses that is in the network and in none of the exceptions.
func first(sorted []netip.Addr, n netip.Prefix, except []netip.Prefix) (netip.Addr, bool) {
	from, _ := slices.BinarySearchFunc(sorted, n.Masked().Addr(), netip.Addr.Compare)
	for _, a := range sorted[from:] {
		if !n.Contains(a) {
			break
		}
		if !excepted(a, except) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func excepted(a netip.Addr, except []netip.Prefix) bool {
	return slices.ContainsFunc(except, func(p netip.Prefix) bool { return p.Contains(a) })
}
