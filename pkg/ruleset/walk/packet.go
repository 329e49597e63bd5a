package walk

import "net/netip"

// Packet is what rules can ask of a packet. A field left at its zero value is not there: no transport header, no connection.
type Packet struct {
	In, Out  string // interfaces; In is empty for packets that the node itself sends, Out for those to itself
	Src, Dst netip.Addr
	Protocol uint8
	Fragment bool // a later fragment: it has no transport header
	TCP      uint8
	Ports    Ports
	ICMP     ICMP
	Mark     uint32

	Connection *Connection // nil: the packet is INVALID, or with Untracked, UNTRACKED
	Untracked  bool

	Routing *Routing
	Others  Others
}

// Flags of a TCP packet, as in its header.
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Ports are those of TCP, UDP, SCTP and UDPLite.
type Ports struct{ Src, Dst uint16 }

// ICMP is the kind of an ICMP or ICMPv6 message.
type ICMP struct{ Type, Code uint8 }

// State is how a packet stands to its connection.
type State uint8

// The states of tracked packets.
const (
	New State = iota
	Established
	Related
)

// Connection is what the kernel's connection tracking knows at the packet.
type Connection struct {
	State      State
	Reply      bool // the packet goes against the direction of the first one
	Mark       uint32
	Protocol   uint8
	SNAT, DNAT bool // source or destination is translated, the address or only the port
	// ReplyDst is where answers go. Zero: it is none of the addresses that rules name.
	ReplyDst netip.Addr
}

// Routing is the routing header of an IPv6 packet.
type Routing struct{ Type, SegmentsLeft uint32 }

// Others are answers for matches whose meaning depends on more than the packet. A text or a function that is not set makes the match unknown.
type Others struct {
	SrcType, DstType string                               // of addresses, for addrtype: "LOCAL", "UNICAST"
	LinkType         string                               // for pkttype: "unicast"
	Limited          bool                                 // for limit: too many packets came before, it does not match
	BPF              func(bytecode string) (matches bool) // for bpf --bytecode
}

// Place is a part of a packet that is looked up in a set: source or destination.
type Place uint8

// The places. An interface in the place Src is the one where the packet came in.
const (
	Src Place = iota + 1
	Dst
)

// Entry is what a set has for a packet: the mark that SET --map-set gives it, under a mask.
type Entry struct{ Mark, Mask uint32 }

// Sets answers for IP sets.
type Sets interface {
	// Lookup looks a packet up in the set, each dimension of it at one of the places, as its type demands. found is false also
	// for an entry with nomatch. In a set of type hash:net,iface only the entries with the longest prefix that has the address
	// count, whatever their interface. An error ends the walk: the set does not exist, or has dimensions that the places do not fit.
	Lookup(set string, places []Place, p *Packet) (e Entry, found bool, err error)
}

// Addr is the address at a place.
func (p *Packet) Addr(place Place) netip.Addr {
	if place == Src {
		return p.Src
	}
	return p.Dst
}

// Interface is the interface at a place.
func (p *Packet) Interface(place Place) string {
	if place == Src {
		return p.In
	}
	return p.Out
}

// Port is the port at a place.
func (p *Packet) Port(place Place) uint16 {
	if place == Src {
		return p.Ports.Src
	}
	return p.Ports.Dst
}
