package chains

// Parts of IPv6 headers and the types of ICMPv6 messages that resolve addresses (RFC 4861).
const (
	nextHeaderAt, hopLimitAt, destinationAt = 6, 7, 24
	typeAt                                  = 40 // without extension headers

	icmpv6                      = 58
	farthest                    = 255 // the hop limit of packets that no router has forwarded
	solicitation, advertisement = 135, 136
)

// solicits matches solicitations and advertisements of neighbours to link-local multicast addresses. They reach the node and no
// other machine, whatever their source is: the kernel sends no errors about such packets and answers on their own link. A message to a unicast
// address of the link does not match: the kernel could send a redirect about it to its source.
func solicits() []instruction {
	var p program
	p.add(instruction{code: loadByte, k: nextHeaderAt})
	p.demand(ifEqual, icmpv6)
	p.add(instruction{code: loadByte, k: hopLimitAt})
	p.demand(ifEqual, farthest)
	p.add(instruction{code: loadWord, k: destinationAt}, instruction{code: andWith, k: 0xffff0000})
	p.demand(ifEqual, 0xff020000)
	p.add(instruction{code: loadByte, k: typeAt}, instruction{code: ifEqual, yes: 1, k: solicitation})
	p.demand(ifEqual, advertisement)
	return p.done()
}

// exceptDiscovery matches all packets of the node but solicitations and advertisements of neighbours.
func exceptDiscovery() []instruction {
	var w verdicts
	w.add(instruction{code: loadByte, k: nextHeaderAt})
	w.ifNot(drops, instruction{code: ifEqual, k: icmpv6})
	w.add(instruction{code: loadByte, k: hopLimitAt})
	w.ifNot(drops, instruction{code: ifEqual, k: farthest})
	w.add(instruction{code: loadByte, k: typeAt})
	w.ifSo(passes, instruction{code: ifEqual, k: solicitation})
	w.ifSo(passes, instruction{code: ifEqual, k: advertisement})
	return w.done()
}
