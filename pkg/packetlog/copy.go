// Package packetlog turns the copies of packets that rules send to an NFLOG group into flow records. A copy has the packet and the
// prefix of the rule, but not the endpoint whose policy decided: Options.Decide, of the dataplane that made the rules, adds it.
package packetlog

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/ipheader"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/nflog"
)

// Copy is a packet that a rule has matched.
type Copy struct {
	Time    time.Time // at which it was read
	Packet  flows.Packet
	Number  uint8  // of the protocol
	Prefix  string // of the rule
	Mark    uint32
	In, Out uint32 // numbers of interfaces, 0: there is none at the hook
}

// decode makes a Copy of a packet from the kernel; false: the packet lacks headers that identify a flow.
func decode(p nflog.Packet, at time.Time) (Copy, bool) {
	ip, err := ipheader.Parse(p.Payload)
	if err != nil || ip.Later {
		return Copy{}, false
	}
	c := Copy{Time: at, Number: ip.Protocol, Prefix: p.Prefix, Mark: p.Mark, In: p.In, Out: p.Out}
	c.Packet.Protocol = model.ProtocolName(ip.Protocol)
	t := ip.Transport
	var srcPort, dstPort uint16
	switch icmp := ip.Protocol == model.ProtoICMP && ip.Src.Is4() || ip.Protocol == model.ProtoICMPv6 && ip.Src.Is6(); {
	case (icmp || model.HasPorts(ip.Protocol)) && len(t) < 4:
		return Copy{}, false
	case icmp:
		c.Packet.ICMP = &flows.ICMP{Type: t[0], Code: t[1]}
	case model.HasPorts(ip.Protocol):
		srcPort, dstPort = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	}
	c.Packet.Src, c.Packet.Dst = netip.AddrPortFrom(ip.Src, srcPort), netip.AddrPortFrom(ip.Dst, dstPort)
	return c, true
}
