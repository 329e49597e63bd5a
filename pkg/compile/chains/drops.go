package chains

// Names of chains that drop what is sent to them. They do not depend on the generation, so none is written again when it changes, and
// their counters say how many packets were dropped for one reason. If somebody has flushed one, the packet is judged on.
const (
	DropsSpoofed = "spoofed" // not the address of the pod behind the interface
	DropsStale   = "stale"   // for an address that is not that of the pod behind the interface
	DropsInvalid = "invalid" // not a part of any flow, conntrack says
	DropsLoose   = "loose"   // TCP in mid-flow, of no flow that is known
	DropsRouted  = "routed"  // with hops of its route left; IPv4: with a source route at all
	DropsBounced = "bounced" // an error of the node about a packet that no rule has seen
)

// dropChains makes the chains that drop.
func dropChains(b *static) {
	for _, name := range []string{DropsSpoofed, DropsStale, DropsInvalid, DropsLoose, DropsBounced} {
		b.chain(name, "-j DROP")
	}
	if b.c.Family == 4 {
		b.chain(DropsRouted, "-j DROP")
		return
	}
	b.chain(DropsRouted, "-m bpf --bytecode "+quoted(routedByHeaders())+" -j DROP")
}
