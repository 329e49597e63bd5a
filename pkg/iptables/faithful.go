package iptables

import (
	"bytes"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// iptables-nft prints a rule without those of its expressions that it does not know, and succeeds: one with a lookup in a set, a range of
// addresses or another field of a header looks like one without. Here are the expressions that iptables-nft writes for the matches and
// targets of our rules, in the forms that it prints again. Those that stand for a match or target of xtables print themselves.

// reading judges the expressions of one rule, in their order.
type reading struct {
	family   Family
	older    bool   // the version is one before nativeSince
	loaded   string // the field that the register has; empty: none
	register uint32
	size     uint32 // of the field in bytes; 0: a text
	mask     []byte
	protocol byte     // that the rule demands; 0: none
	compared []string // iptables prints of two comparisons of a field only one
	ended    bool     // by a target or verdict, of which iptables prints one
}

// nativeSince is the first version that prints marks and fields of transport headers which are compared without a match of xtables, and that
// prints a mask of addresses which is no prefix as it is. Versions before it write no rule of ours in these forms.
var nativeSince = [3]int{1, 8, 8}

// unfaithful returns the first expression of a rule that iptables-nft does not print as it is; empty: it prints all of them. older: the
// version is one before nativeSince.
func unfaithful(family Family, older bool, expressions []byte) string {
	r := reading{family: family, older: older}
	for _, expression := range nfnl.Attributes(expressions) {
		name := nfnl.String(nfnl.Find(expression, unix.NFTA_EXPR_NAME))
		if !r.prints(name, nfnl.Find(expression, unix.NFTA_EXPR_DATA)) {
			return name
		}
	}
	if r.loaded != "" {
		return "load of " + r.loaded
	}
	return ""
}

// prints reports whether the next expression is printed.
func (r *reading) prints(name string, data []byte) bool {
	if r.ended {
		return false
	}
	switch name {
	case "meta", "payload":
		return r.loaded == "" && r.load(name, data)
	case "bitwise":
		return r.masked(data)
	case "cmp", "range":
		return r.compare(name, data)
	}
	if r.loaded != "" {
		return false
	}
	switch name {
	case "counter", "match":
		return true
	case "limit":
		units := []uint64{1, 60, 3600, 86400}
		return number(data, unix.NFTA_LIMIT_TYPE) == 0 && number(data, unix.NFTA_LIMIT_FLAGS) == 0 &&
			slices.Contains(units, nfnl.Uint64(nfnl.Find(data, unix.NFTA_LIMIT_UNIT)))
	case "target":
		r.ended = true
		return true
	case "log":
		r.ended = true
		return !r.older
	case "reject":
		r.ended = true
		return !r.older && number(data, unix.NFTA_REJECT_TYPE) <= 1 // ICMP of the family, or a TCP reset
	case "immediate":
		r.ended = true
		code := int32(number(data, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CODE))
		return number(data, unix.NFTA_IMMEDIATE_DREG) == unix.NFT_REG_VERDICT && slices.Contains([]int32{0, 1, unix.NFT_JUMP, unix.NFT_GOTO, unix.NFT_RETURN}, code)
	}
	return false
}

// metaFields are fields beside the packet's headers.
var metaFields = map[uint32]struct {
	name string
	size uint32
}{
	unix.NFT_META_MARK: {"mark", 4}, unix.NFT_META_L4PROTO: {"protocol", 1}, unix.NFT_META_IIFNAME: {"iifname", 0}, unix.NFT_META_OIFNAME: {"oifname", 0},
}

// load notes the field that is loaded into a register. It is one of those that iptables has options for.
func (r *reading) load(name string, data []byte) bool {
	var target []byte
	switch name {
	case "meta":
		field := metaFields[number(data, unix.NFTA_META_KEY)]
		r.loaded, r.size = field.name, field.size
		target = nfnl.Find(data, unix.NFTA_META_DREG)
	case "payload":
		at, length := number(data, unix.NFTA_PAYLOAD_OFFSET), number(data, unix.NFTA_PAYLOAD_LEN)
		r.size = length
		switch number(data, unix.NFTA_PAYLOAD_BASE) {
		case unix.NFT_PAYLOAD_NETWORK_HEADER:
			r.loaded = networkAt(r.family, at, length)
		case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
			r.loaded = r.transportAt(at, length)
		}
		target = nfnl.Find(data, unix.NFTA_PAYLOAD_DREG)
	}
	r.register, r.mask = nfnl.Uint32(target), nil
	if r.older && slices.Contains([]string{"mark", "source port", "destination port", "flags"}, r.loaded) {
		return false
	}
	return r.loaded != "" && target != nil && !slices.Contains(r.compared, r.loaded)
}

// networkAt names the field at this place of the network header: the protocol, which iptables 1.8.11 reads there for IPv4 and 1.8.9 from
// the packet's description, or the address of which a part, from its beginning, is there.
func networkAt(family Family, at, length uint32) string {
	size, source := addressSize(family), uint32(12)
	if family == V6 {
		source = 8
	}
	switch {
	case family == V4 && at == 9 && length == 1:
		return "protocol"
	case length == 0 || length > size:
	case at == source:
		return "source"
	case at == source+size:
		return "destination"
	}
	return ""
}

func addressSize(family Family) uint32 {
	if family == V6 {
		return 16
	}
	return 4
}

// transportAt names the field at this place of a transport header. iptables prints them after the protocol only.
func (r *reading) transportAt(at, length uint32) string {
	switch {
	case r.protocol != unix.IPPROTO_TCP && r.protocol != unix.IPPROTO_UDP:
	case at == 0 && length == 2:
		return "source port"
	case at == 2 && length == 2:
		return "destination port"
	case at == 13 && length == 1 && r.protocol == unix.IPPROTO_TCP:
		return "flags"
	}
	return ""
}

// masked notes the mask of a field.
func (r *reading) masked(data []byte) bool {
	whole := uint32(0)
	switch r.loaded {
	case "mark":
		whole = 4
	case "flags":
		whole = 1
	case "source", "destination":
		whole = addressSize(r.family)
	}
	r.mask = nfnl.Find(data, unix.NFTA_BITWISE_MASK, unix.NFTA_DATA_VALUE)
	other := nfnl.Find(data, unix.NFTA_BITWISE_XOR, unix.NFTA_DATA_VALUE)
	const operation = 6 // NFTA_BITWISE_OP; 0: by a mask
	return whole != 0 && whole == r.size && len(r.mask) == int(r.size) && !zero(r.mask) && zero(other) && number(data, operation) == 0 &&
		(!r.older || isPrefix(r.mask)) && r.register == number(data, unix.NFTA_BITWISE_SREG) && r.register == number(data, unix.NFTA_BITWISE_DREG)
}

// compare reports whether the comparison of the loaded field is printed.
func (r *reading) compare(name string, data []byte) bool {
	field := r.loaded
	r.loaded, r.compared = "", append(r.compared, field)
	port := strings.HasSuffix(field, "port")
	if name == "range" {
		from, to := nfnl.Find(data, unix.NFTA_RANGE_FROM_DATA, unix.NFTA_DATA_VALUE), nfnl.Find(data, unix.NFTA_RANGE_TO_DATA, unix.NFTA_DATA_VALUE)
		every := nfnl.Uint16(from) == 0 && nfnl.Uint16(to) == 1<<16-1 // is not printed, its negation neither
		return port && !every && r.register == number(data, unix.NFTA_RANGE_SREG)
	}
	value := nfnl.Find(data, unix.NFTA_CMP_DATA, unix.NFTA_DATA_VALUE)
	operations := []uint32{unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ}
	if port {
		operations = append(operations, unix.NFT_CMP_LTE, unix.NFT_CMP_GTE)
	}
	if r.register != number(data, unix.NFTA_CMP_SREG) || !slices.Contains(operations, number(data, unix.NFTA_CMP_OP)) || r.size != 0 && len(value) != int(r.size) {
		return false
	}
	for i := range r.mask {
		if value[i]&^r.mask[i] != 0 {
			return false
		}
	}
	switch field {
	case "":
		return false
	case "protocol":
		if number(data, unix.NFTA_CMP_OP) == unix.NFT_CMP_EQ {
			r.protocol = value[0]
		}
		return value[0] != 0
	case "flags":
		return r.mask != nil
	case "iifname", "oifname":
		text := bytes.TrimRight(value, "\x00")
		return len(text) > 0 && !bytes.ContainsAny(text, "\x00+") // a prefix is printed with + at its end
	}
	return true
}

// isPrefix reports whether no bit of a mask follows one that is 0.
func isPrefix(mask []byte) bool {
	ones, _ := net.IPMask(mask).Size()
	return ones > 0
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// number returns an attribute of 32 bits; 0 if it is not there.
func number(data []byte, path ...uint16) uint32 { return nfnl.Uint32(nfnl.Find(data, path...)) }
