package chains

// Names of chains that drop all packets that enter them. They do not depend on the generation, so they are not written again when it
// changes, and their counters are the numbers of packets dropped for each reason. If one is flushed, its packets return and policy
// judges them.
const (
	DropsSpoofed = "spoofed" // the source is not an address of the pod behind the interface
	DropsStale   = "stale"   // the destination is not an address of the pod behind the interface
	DropsInvalid = "invalid" // conntrack finds it invalid
	DropsLoose   = "loose"   // TCP in mid-flow, of a flow that conntrack does not have
	DropsRouted  = "routed"  // a routing header has segments left; IPv4: there is a source route
	DropsBounced = "bounced" // an error of the node about a packet that no rule has seen
)

// drops makes the chains that drop.
func (c *checks) drops() (list []Chain) {
	t := c.t
	for _, name := range []string{DropsSpoofed, DropsStale, DropsInvalid, DropsLoose, DropsBounced} {
		list = append(list, t.chain(name, "-j DROP"))
	}
	return append(list, t.chain(DropsRouted, when(t.family == 6, "-m bpf --bytecode "+bytecode(routedByHeaders())+" ")+"-j DROP"))
}
