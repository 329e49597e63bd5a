package bpfmaps

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/margay-project/margay/bpf"
)

// text is a key as people write it.
func text[K any](key K) string {
	switch k := any(key).(type) {
	case bpf.IP4:
		return netip.AddrFrom4(k.Addr).String()
	case bpf.IP6:
		return netip.AddrFrom16(k.Addr).String()
	case bpf.Net4:
		return fmt.Sprintf("%s/%d", netip.AddrFrom4(k.Addr), k.Prefixlen)
	case bpf.Net6:
		return fmt.Sprintf("%s/%d", netip.AddrFrom16(k.Addr), k.Prefixlen)
	case bpf.ClassChunk:
		return fmt.Sprintf("class %d chunk %d", k.Class, k.Chunk)
	default:
		return fmt.Sprint(key)
	}
}

// NewName is s as a map value. A name that is too long is cut, with a checksum of the whole at its end, so that different
// texts stay different.
func NewName(s string) bpf.Name {
	var n bpf.Name
	if room := len(n.Text) - 1; len(s) > room {
		sum := fnv.New64a()
		sum.Write([]byte(s))
		end := fmt.Sprintf("~%016x", sum.Sum64())
		s = s[:room-len(end)] + end
	}
	copy(n.Text[:], s)
	return n
}

// NameText is the text of a map value made by NewName.
func NameText(n bpf.Name) string {
	before, _, _ := bytes.Cut(n.Text[:], []byte{0})
	return string(before)
}

// IP4 is an IPv4 address as a map key.
func IP4(a netip.Addr) bpf.IP4 { return bpf.IP4{Addr: a.As4()} }

// IP6 is an IPv6 address as a map key.
func IP6(a netip.Addr) bpf.IP6 { return bpf.IP6{Addr: a.As16()} }

// Net4 is an IPv4 prefix as a map key, without the bits beyond its length.
func Net4(p netip.Prefix) bpf.Net4 {
	return bpf.Net4{Prefixlen: uint32(p.Bits()), Addr: p.Masked().Addr().As4()}
}

// Net6 is an IPv6 prefix as a map key, without the bits beyond its length.
func Net6(p netip.Prefix) bpf.Net6 {
	return bpf.Net6{Prefixlen: uint32(p.Bits()), Addr: p.Masked().Addr().As16()}
}
