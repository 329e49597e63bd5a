package attach

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/further"
)

// RoutesOut returns the routes of the node's table main that lead out of the named interfaces, and those inside of them that lead
// elsewhere, in the kernel's order. Routes to several next hops lead elsewhere.
func RoutesOut(o WatchOptions, interfaces map[string]bool) ([]further.Route, error) {
	if len(interfaces) == 0 {
		return nil, nil
	}
	names := map[int]string{}
	links, err := Interfaces(o, "")
	if err != nil {
		return nil, err
	}
	for _, i := range links {
		if interfaces[i.Name] {
			names[int(i.Ifindex)] = i.Name
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	r, err := openRouteReader(o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	var all []further.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := r.out(family, names)
		if err != nil {
			return nil, fmt.Errorf("find the routes to pods with further sources: %w", err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// out returns the routes of one family. The table is read twice, so that memory is needed for routes to and inside of those only: a router
// may have very many.
func (r *routeReader) out(family int, names map[int]string) (list []further.Route, err error) {
	wide := map[netip.Prefix]bool{} // that lead out of the interfaces: others with the same prefix may come first, or be inside
	var lengths []int
	err = r.dump(family, func(m []byte) {
		p, name, ok := mainRoute(m, names)
		if !ok || name == "" {
			return
		}
		if wide[p] {
			return
		}
		wide[p] = true
		if !slices.Contains(lengths, p.Bits()) {
			lengths = append(lengths, p.Bits())
		}
	})
	if err != nil {
		return nil, err
	}
	inside := func(p netip.Prefix) bool {
		return slices.ContainsFunc(lengths, func(bits int) bool {
			around, err := p.Addr().Prefix(bits)
			return err == nil && bits <= p.Bits() && wide[around]
		})
	}
	err = r.dump(family, func(m []byte) {
		if p, name, ok := mainRoute(m, names); ok && (name != "" || inside(p)) {
			list = append(list, further.Route{Prefix: p, Interface: name})
		}
	})
	return list, err
}

// mainRoute reads a route of table main; name is that of its interface, if it is one of names.
func mainRoute(m []byte, names map[int]string) (p netip.Prefix, name string, ok bool) {
	route, ok := parseRoute(m)
	if !ok || route.table != unix.RT_TABLE_MAIN {
		return p, "", false
	}
	if !route.addr.IsValid() {
		route.addr = netip.IPv4Unspecified()
		if m[0] == unix.AF_INET6 {
			route.addr = netip.IPv6Unspecified()
		}
	}
	if route.unicast {
		name = names[route.ifindex]
	}
	p, err := route.addr.Prefix(route.bits)
	return p, name, err == nil
}
