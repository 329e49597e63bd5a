package ipsets

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

const subsystem = 6 // NFNL_SUBSYS_IPSET

const (
	commandProtocol = 1
	commandCreate   = 2
	commandDestroy  = 3
	commandSwap     = 6
	commandList     = 7
	commandAdd      = 9
	commandDelete   = 10
	commandType     = 13
)

// Attributes of a request.
const (
	attrProtocol    = 1
	attrSetName     = 2
	attrTypeName    = 3
	attrRevision    = 4
	attrFamily      = 5
	attrFlags       = 6
	attrData        = 7
	attrEntries     = 8 // IPSET_ATTR_ADT
	attrLine        = 9
	attrProtocolMin = 10 // of an answer; the lowest revision of an answer about a type
)

// Attributes inside attrData: of a set, and of an entry.
const (
	attrIP        = 1
	attrPrefixLen = 3
	attrPort      = 4
	attrProto     = 7
	attrCADTFlags = 8

	attrHashSize   = 18
	attrMaxEntries = 19
	attrElements   = 24
	attrReferences = 25
	attrMemory     = 26

	attrInterface = 23
	attrMark      = 27

	attrIPv4 = 1
	attrIPv6 = 2
)

const (
	listNames  = 1 << 1 // IPSET_FLAG_LIST_SETNAME
	listHeader = 1 << 2 // IPSET_FLAG_LIST_HEADER

	flagPhysdev     = 1 << 1
	flagNoMatch     = 1 << 2
	flagWithSkbinfo = 1 << 6
	flagWildcard    = 1 << 7
	flagsOfKeys     = flagPhysdev | flagWildcard

	revisionMarksNet  = 6 // hash:net and hash:net,iface know skbinfo from here on
	revisionMarksPort = 7 // hash:net,port
	maxNameLen        = 31
	maxOfPrefix       = 64 // AHASH_MAX_TUNED: interfaces of one prefix
	maxInterfaceLen   = 15
	protocolOldest    = 6 // spoken by kernels before 4.20 and still by later ones
	defaultMaxEntries = 65536
	messageLen        = 16 << 10 // one request; the kernel holds ipset's lock for its time
)

// revision returns the lowest revision of the type that has skbinfo, so that any ipset binary with skbinfo can list the set.
func (t Type) revision() uint8 {
	if t == NetPort {
		return revisionMarksPort
	}
	return revisionMarksNet
}

// request begins the attributes of a request about a set.
func request(set string) *nfnl.Encoder {
	e := &nfnl.Encoder{Order: unix.NLA_F_NET_BYTEORDER}
	e.Uint8(attrProtocol, protocolOldest)
	if set != "" {
		e.String(attrSetName, set)
	}
	return e
}

// check refuses entries that the kernel would refuse with a mere number, or would accept with another meaning.
func (s Spec) check(e Entry) error {
	p := e.Prefix
	switch {
	case !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" || p.Addr().BitLen() != s.Family.bits():
		return fmt.Errorf("%w: the prefix is not of %v", ErrEntry, s.Family)
	case p != p.Masked():
		return fmt.Errorf("%w: bits are set beyond the prefix length", ErrEntry)
	case (s.Type == NetInterface) != (e.Interface != "") || len(e.Interface) > maxInterfaceLen:
		return fmt.Errorf("%w: a name of 1 to %d bytes is needed in sets of %s, and forbidden in others", ErrEntry, maxInterfaceLen, NetInterface)
	case (s.Type == NetPort) != (e.Protocol != 0) || s.Type != NetPort && e.Port != 0:
		return fmt.Errorf("%w: a protocol is needed in sets of %s, and forbidden in others", ErrEntry, NetPort)
	case e.Mark.Value&^e.Mark.Mask != 0:
		return fmt.Errorf("%w: the mark %#x has bits outside its mask %#x, which would be flipped", ErrEntry, e.Mark.Value, e.Mark.Mask)
	}
	return nil
}

// appendEntry writes one entry of a list; line is its number in the kernel's errors.
func appendEntry(to *nfnl.Encoder, c Change, line uint32) {
	data := to.Nest(attrData)
	appendAddr(to, c.Prefix.Addr())
	to.Uint8(attrPrefixLen, uint8(c.Prefix.Bits()))
	if c.Interface != "" {
		to.String(attrInterface, c.Interface)
	}
	if c.Protocol != 0 {
		to.Uint16(attrPort, c.Port)
		to.Uint8(attrProto, c.Protocol)
	}
	if !c.Remove {
		to.Uint64(attrMark, uint64(c.Mark.Value)<<32|uint64(c.Mark.Mask))
	}
	flags := uint32(c.Flags & flagsOfKeys)
	if c.NoMatch && !c.Remove {
		flags |= flagNoMatch
	}
	if flags != 0 {
		to.Uint32(attrCADTFlags, flags)
	}
	to.Uint32(attrLine, line)
	to.End(data)
}

func appendAddr(to *nfnl.Encoder, a netip.Addr) {
	ip := to.Nest(attrIP)
	if a.Is4() {
		b := a.As4()
		to.Raw(attrIPv4|unix.NLA_F_NET_BYTEORDER, b[:])
	} else {
		b := a.As16()
		to.Raw(attrIPv6|unix.NLA_F_NET_BYTEORDER, b[:])
	}
	to.End(ip)
}

// entry reads one element of a dump.
func entry(b []byte) (Entry, error) {
	var e Entry
	var addr netip.Addr
	bits := -1
	for kind, payload := range nfnl.Attributes(b) {
		switch kind {
		case attrIP:
			for _, raw := range nfnl.Attributes(payload) {
				addr, _ = netip.AddrFromSlice(raw) // checked below
			}
		case attrPrefixLen:
			bits = int(nfnl.Uint8(payload))
		case attrInterface:
			e.Interface = nfnl.String(payload)
		case attrPort:
			e.Port = nfnl.Uint16(payload)
		case attrProto:
			e.Protocol = nfnl.Uint8(payload)
		case attrCADTFlags:
			flags := nfnl.Uint32(payload)
			e.NoMatch, e.Flags = flags&flagNoMatch != 0, uint8(flags&flagsOfKeys)
		case attrMark:
			both := nfnl.Uint64(payload)
			e.Mark = Mark{Value: uint32(both >> 32), Mask: uint32(both)}
		}
	}
	if bits < 0 {
		bits = addr.BitLen()
	}
	e.Prefix = netip.PrefixFrom(addr, bits)
	if !e.Prefix.IsValid() {
		return e, fmt.Errorf("an entry without a valid prefix (%v/%d)", addr, bits)
	}
	return e, nil
}
