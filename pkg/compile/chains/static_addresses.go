package chains

import (
	"fmt"
	"slices"
)

// addresses are rules about the address that a packet has at the end of a pod: one of the pod's own, one of its further sources, or
// that of others.
type addresses struct {
	t             *terms
	sources       []Source // of all pods
	noReversePath bool     // see Further
}

// further reports whether pods have further sources. Otherwise no chain looks at them.
func (a *addresses) further() bool { return len(a.sources) > 0 }

// notOwn matches packets from an address that the pod does not own, and all of an interface that is not ready.
func (a *addresses) notOwn() string {
	return a.t.in + " -m set ! --match-set " + a.t.sets.Own + " src,src"
}

// toNotOwn matches packets to an address that the pod does not own, and all to an interface that is not ready.
func (a *addresses) toNotOwn() string {
	return a.t.out + " -m set ! --match-set " + a.t.sets.Own + " dst,dst"
}

// owned matches packets with an address, at the given end, that belongs to an endpoint, a node or a Service.
func (a *addresses) owned(end string) string {
	return "-m set --match-set " + a.t.sets.Owned + " " + end
}

// spoofed drops packets that match and that a pod sends from an address that it may not send from, and all packets of an interface
// that is not ready.
func (a *addresses) spoofed(match string) string {
	return both(match, a.notOwn()) + " -j " + a.t.name(a.orFurther(DropsSpoofed, "listed"))
}

// stale drops packets to an address that the pod behind the interface does not own, and all packets to an interface that is not
// ready: the flow may be that of the address's former owner.
func (a *addresses) stale() string {
	return a.toNotOwn() + " -j " + a.t.name(a.orFurther(DropsStale, "reaches"))
}

// unreachable is stale for packets of the node.
func (a *addresses) unreachable() string {
	if a.further() {
		return a.toNotOwn() + " -j " + a.t.name("reached")
	}
	return a.toNotOwn() + " -j DROP"
}

// orFurther returns the second name if pods have further sources.
func (a *addresses) orFurther(without, with string) string {
	if a.further() {
		return with
	}
	return without
}

// slot finds the slot of a further source, for packets at an interface for which the sets of the pods' own addresses have none.
func (a *addresses) slot(at, end string, tree Direction) string {
	return when(a.further(), at+" "+a.t.marked(0, a.t.marks.number())+" -j "+a.t.name(end+"-"+string(tree)))
}

// reachable returns the rules by which packets to further sources return from a chain. A packet to an address that has an owner goes
// on to the end of the chain, whatever the pod lists.
func (a *addresses) reachable() (rules []string) {
	for _, s := range a.sources {
		rules = append(rules, "-o "+s.Interface+" -m set ! --match-set "+a.t.sets.Owned+" dst -m set --match-set "+s.Egress+" dst -j RETURN")
	}
	return rules
}

// foreign makes the chains of table raw, for packets from a pod whose source is not an address of the pod. They are dropped before conntrack
// sees them: with a SYN and an answer to it, neither of which needs a number of the connection, a pod could have conntrack take all packets
// of a connection of others for invalid, and with an INIT those of an association. So they are dropped before routing, too: the node
// would send errors about them (hops used up, no such address, redirects), with data of the pod, to the owner of the source address.
// Listener and neighbour discovery may have a link-local or unspecified source; it is not forwarded.
func (a *addresses) foreign() []Chain {
	others := "-j " + a.t.name(DropsSpoofed)
	list := []Chain{a.t.chain(DropsSpoofed, "-j DROP")}
	if a.further() {
		others = "-g " + a.t.name("further")
		list = append(list,
			a.t.chain("further", slices.Concat(a.never(), a.fromEach("-g "+a.t.name("stray")), []string{"-j " + a.t.name(DropsSpoofed)})...),
			a.t.chain("stray", when(!a.noReversePath, "-m rpfilter -j RETURN"), a.t.mark(stray(a.t.marks))))
	}
	if a.t.family == 4 {
		return append(list, a.t.chain("foreign", others))
	}
	var rules []string
	for _, typ := range discoveryTypes {
		for _, to := range linkPrefixes {
			rules = append(rules, "-d "+to+" "+discovery(typ)+" -j RETURN")
		}
	}
	return append(list,
		a.t.chain("link", append(rules, "-j "+a.t.name(DropsSpoofed))...),
		a.t.chain("foreign", "-s fe80::/10 -g "+a.t.name("link"), "-s ::/128 -g "+a.t.name("link"), others))
}

// linkPrefixes are the destinations of listener and neighbour discovery.
var linkPrefixes = []string{"fe80::/10", "ff02::/16"}

// discoveryTypes are the ICMPv6 types of listener and neighbour discovery.
var discoveryTypes = []int{130, 131, 132, 133, 135, 136, 143}

// discovery matches messages of one of these types.
func discovery(typ int) string { return fmt.Sprintf("-p ipv6-icmp -m icmp6 --icmpv6-type %d", typ) }

// listed makes the chains of table mangle for packets from and to further sources. None of them is passed by packets from and to addresses
// that pods own.
func (a *addresses) listed() []Chain {
	if !a.further() {
		return nil
	}
	t, spoofed := a.t, "-j "+a.t.name(DropsSpoofed)
	return []Chain{
		t.chain("listed", slices.Concat(a.never(), a.fromEach("-j RETURN"), []string{spoofed})...),
		t.chain("reaches", append(a.reachable(), "-j "+t.name(DropsStale))...),
		t.chain("reached", append(a.reachable(), "-j DROP")...),
	}
}

// neverSources are prefixes whose addresses are no further sources, whatever pods list: unspecified, loopback, link-local, multicast,
// reserved, and IPv4 inside IPv6.
var neverSources = map[uint8][]string{
	4: {"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"},
	6: {"::/96", "::ffff:0.0.0.0/96", "fe80::/10", "ff00::/8"},
}

// never drops packets of pods that may not have a further source.
func (a *addresses) never() (rules []string) {
	spoofed := " -j " + a.t.name(DropsSpoofed)
	if a.t.family == 6 { // discovery is for the pod's own addresses only
		for _, to := range linkPrefixes {
			for _, typ := range discoveryTypes {
				rules = append(rules, "-d "+to+" "+discovery(typ)+spoofed)
			}
		}
	}
	for _, p := range neverSources[a.t.family] {
		rules = append(rules, "-s "+p+spoofed)
	}
	return append(rules, a.owned("src")+spoofed)
}

// fromEach returns a rule for each pod with further sources, for packets from one of them.
func (a *addresses) fromEach(target string) (rules []string) {
	for _, s := range a.sources {
		rules = append(rules, "-i "+s.Interface+" -m set --match-set "+s.Egress+" src "+target)
	}
	return rules
}

// slots makes the chains that slot leads to.
func (a *addresses) slots() (list []Chain) {
	if !a.further() {
		return nil
	}
	for _, end := range []struct{ option, name string }{{"-i", "src"}, {"-o", "dst"}} {
		egress, ingress := []string{a.owned(end.name) + " -j RETURN"}, []string{a.owned(end.name) + " -j RETURN"}
		for _, s := range a.sources {
			find := end.option + " " + s.Interface + " -j SET --map-set "
			egress = append(egress, find+s.Egress+" "+end.name+" --map-mark")
			ingress = append(ingress, find+s.Ingress+" "+end.name+" --map-mark")
		}
		list = append(list, a.t.chain(end.name+"-"+string(EgressSlots), egress...), a.t.chain(end.name+"-"+string(IngressSlots), ingress...))
	}
	return list
}
