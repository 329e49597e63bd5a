package marks

import (
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// expression is one expression of a rule of nftables: its name and attributes by number, as the kernel has them.
type expression struct {
	name  string
	attrs map[uint16][]byte
}

// number is an attribute that is a number; nfnetlink has them in network byte order.
func (e expression) number(attr uint16) (n uint32, ok bool) {
	b := e.attrs[attr]
	if len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// value is what a register of nftables' machine holds, as far as it matters here: whether it began as the packet's mark, and
// the bits that are still as they were there.
type value struct {
	mark bool
	kept uint32
}

// machine follows the mark through the 16 registers of 32 bits.
type machine struct {
	registers [16]value
	use       Use
}

// effect is what a rule does to the mark.
func effect(rule []expression) Use {
	var m machine
	for _, e := range rule {
		m.step(e)
	}
	return m.use
}

// without are the expressions that write to no register.
var without = []string{"counter", "log", "limit", "notrack", "reject", "masq", "nat", "redir", "queue", "quota", "connlimit", "objref",
	"dup", "fwd", "flow_offload", "synproxy", "tproxy", "dynset", "last"}

func (m *machine) step(e expression) {
	switch e.name {
	case "meta":
		m.meta(e)
	case "bitwise":
		m.bitwise(e)
	case "cmp", "range":
		m.read(e, unix.NFTA_CMP_SREG)
	case "lookup":
		m.read(e, unix.NFTA_LOOKUP_SREG)
		m.forget(e, unix.NFTA_LOOKUP_DREG)
	case "immediate":
		m.forget(e, unix.NFTA_IMMEDIATE_DREG)
	case "ct":
		m.forget(e, unix.NFTA_CT_DREG)
	case "match":
		m.use.Reads |= matchReads(info(e, unix.NFTA_MATCH_NAME, unix.NFTA_MATCH_REV, unix.NFTA_MATCH_INFO))
	case "target":
		m.use.Changes |= targetChanges(info(e, unix.NFTA_TARGET_NAME, unix.NFTA_TARGET_REV, unix.NFTA_TARGET_INFO))
	default:
		if !slices.Contains(without, e.name) {
			m.registers = [16]value{} // it may write to any of them
		}
	}
}

func (m *machine) meta(e expression) {
	key, _ := e.number(unix.NFTA_META_KEY)
	if _, loads := e.attrs[unix.NFTA_META_DREG]; loads {
		m.forget(e, unix.NFTA_META_DREG)
		if r, ok := register(e, unix.NFTA_META_DREG); ok && key == unix.NFT_META_MARK {
			m.registers[r] = value{mark: true, kept: ^uint32(0)}
		}
		return
	}
	if key != unix.NFT_META_MARK {
		return
	}
	var v value
	if r, ok := register(e, unix.NFTA_META_SREG); ok {
		v = m.registers[r]
	}
	m.use.Changes |= ^v.kept
}

// bitwise follows destination = source & mask ^ xor; any other operation leaves nothing known.
func (m *machine) bitwise(e expression) {
	from, okFrom := register(e, unix.NFTA_BITWISE_SREG)
	length, _ := e.number(unix.NFTA_BITWISE_LEN)
	operation, _ := e.number(bitwiseOperation)
	mask, okMask := data(e, unix.NFTA_BITWISE_MASK)
	xor, okXor := data(e, unix.NFTA_BITWISE_XOR)
	var v value
	if okFrom && okMask && okXor && length == 4 && operation == 0 && m.registers[from].mark {
		v = value{mark: true, kept: m.registers[from].kept & mask &^ xor}
	}
	m.forget(e, unix.NFTA_BITWISE_DREG)
	if to, ok := register(e, unix.NFTA_BITWISE_DREG); ok {
		m.registers[to] = v
	}
}

// bitwiseOperation is NFTA_BITWISE_OP; without the attribute it is mask and xor, as 0 is.
const bitwiseOperation = 6

// read notes that a register is compared.
func (m *machine) read(e expression, attr uint16) {
	if r, ok := register(e, attr); ok && m.registers[r].mark {
		m.use.Reads |= m.registers[r].kept
	}
}

// forget notes that something that is not the mark is written to a register, and maybe the three after it.
func (m *machine) forget(e expression, attr uint16) {
	if r, ok := register(e, attr); ok {
		clear(m.registers[r:min(r+4, len(m.registers))])
	}
}

// register is the number among registers of 32 bits: those of 128 bits are the numbers 1 to 4, those of 32 are 8 to 23. Not
// ok for the verdict's.
func register(e expression, attr uint16) (n int, ok bool) {
	number, ok := e.number(attr)
	switch {
	case ok && number >= unix.NFT_REG_1 && number <= unix.NFT_REG_4:
		return int(number-unix.NFT_REG_1) * 4, true
	case ok && number >= unix.NFT_REG32_00 && number <= unix.NFT_REG32_15:
		return int(number - unix.NFT_REG32_00), true
	}
	return 0, false
}

// data is an attribute that nests 32 bits for a register, which are in the host's byte order as marks are.
func data(e expression, attr uint16) (uint32, bool) {
	nested := e.attrs[attr]
	const header = 4
	if len(nested) != header+4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(nested[header:]), true
}

// extension is a match or target of iptables.
type extension struct {
	name     string
	revision uint32
	info     []byte
}

func info(e expression, name, revision, info uint16) extension {
	n, _ := e.number(revision)
	return extension{strings.TrimRight(string(e.attrs[name]), "\x00"), n, e.attrs[info]}
}
