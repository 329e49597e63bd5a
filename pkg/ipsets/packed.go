package ipsets

import "net/netip"

// packed is a Key without pointers, so that the garbage collector does not walk a large set.
type packed struct {
	addr        [16]byte
	name        [maxInterfaceLen]byte
	bits        uint8
	port        uint16
	proto, flag uint8
}

func pack(k Key) packed {
	p := packed{addr: k.Prefix.Addr().As16(), bits: uint8(k.Prefix.Bits()), port: k.Port, proto: k.Protocol, flag: k.Flags}
	copy(p.name[:], k.Interface)
	return p
}

func (p packed) key(f Family) Key {
	addr := netip.AddrFrom16(p.addr)
	if f == IPv4 {
		addr = addr.Unmap()
	}
	return Key{Prefix: netip.PrefixFrom(addr, int(p.bits)), Interface: text(p.name[:]), Protocol: p.proto, Port: p.port, Flags: p.flag}
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// value is the entry that the kernel holds for a key.
type value struct {
	mark    Mark
	noMatch bool
	seen    bool // equals Set.round if the last reading found the entry
}

func (v value) entry(k Key) Entry { return Entry{Key: k, Mark: v.mark, NoMatch: v.noMatch} }

func (v value) same(e Entry) bool { return v.mark == e.Mark && v.noMatch == e.NoMatch }
