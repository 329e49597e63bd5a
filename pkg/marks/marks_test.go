package marks

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A short notation for expressions: numbers are attributes in network byte order.
func expr(name string, attrs map[uint16]uint32) expression {
	e := expression{name, map[uint16][]byte{}}
	for attr, n := range attrs {
		e.attrs[attr] = binary.BigEndian.AppendUint32(nil, n)
	}
	return e
}

func load(register uint32) expression {
	return expr("meta", map[uint16]uint32{unix.NFTA_META_KEY: unix.NFT_META_MARK, unix.NFTA_META_DREG: register})
}

func set(register uint32) expression {
	return expr("meta", map[uint16]uint32{unix.NFTA_META_KEY: unix.NFT_META_MARK, unix.NFTA_META_SREG: register})
}

func bitwise(from, to, mask, xor uint32) expression {
	e := expr("bitwise", map[uint16]uint32{unix.NFTA_BITWISE_SREG: from, unix.NFTA_BITWISE_DREG: to, unix.NFTA_BITWISE_LEN: 4})
	for attr, n := range map[uint16]uint32{unix.NFTA_BITWISE_MASK: mask, unix.NFTA_BITWISE_XOR: xor} {
		e.attrs[attr] = binary.NativeEndian.AppendUint32([]byte{8, 0, 1, 0}, n)
	}
	return e
}

func writes(name string, attr uint16, register uint32) expression {
	return expr(name, map[uint16]uint32{attr: register})
}

func TestWhatARuleDoesToTheMark(t *testing.T) {
	const all = ^uint32(0)
	for _, tc := range []struct {
		name string
		rule []expression
		want Use
	}{
		{"nothing", nil, Use{}},
		{"set one bit", []expression{load(1), bitwise(1, 1, ^uint32(0x800), 0x800), set(1)}, Use{Changes: 0x800}},
		{"clear one bit", []expression{load(1), bitwise(1, 1, ^uint32(0x800), 0), set(1)}, Use{Changes: 0x800}},
		{"two steps", []expression{load(1), bitwise(1, 9, ^uint32(0x800), 0), bitwise(9, 2, all, 0x1), set(2)}, Use{Changes: 0x801}},
		{"a constant", []expression{writes("immediate", unix.NFTA_IMMEDIATE_DREG, 1), set(1)}, Use{Changes: all}},
		{"a connection's mark", []expression{writes("ct", unix.NFTA_CT_DREG, 1), bitwise(1, 1, 0xff, 0), set(1)}, Use{Changes: all}},
		{"the mark written over before it is set", []expression{load(1), writes("payload", 1, 1), set(1)}, Use{Changes: all}},
		{"a register of 128 bits is four of 32", []expression{load(11), writes("immediate", unix.NFTA_IMMEDIATE_DREG, 1), set(11)}, Use{Changes: all}},
		{"an unknown expression may write anywhere", []expression{load(8), writes("novelty", 1, 20), set(8)}, Use{Changes: all}},
		{"a counter writes nowhere", []expression{load(8), expr("counter", nil), set(8)}, Use{}},
		{"another key", []expression{writes("immediate", unix.NFTA_IMMEDIATE_DREG, 1),
			expr("meta", map[uint16]uint32{unix.NFTA_META_KEY: unix.NFT_META_PRIORITY, unix.NFTA_META_SREG: 1})}, Use{}},
		{"an operation of two registers", []expression{load(8), func() expression {
			e := bitwise(8, 8, all, 0)
			e.attrs[bitwiseOperation] = []byte{0, 0, 0, 4}
			return e
		}(), set(8)}, Use{Changes: all}},
		{"compare one bit", []expression{load(1), bitwise(1, 1, 0x4000, 0), writes("cmp", unix.NFTA_CMP_SREG, 1)}, Use{Reads: 0x4000}},
		{"look all up", []expression{load(1), writes("lookup", unix.NFTA_LOOKUP_SREG, 1)}, Use{Reads: all}},
		{"truncated", []expression{{name: "meta"}, {name: "bitwise"}, {name: "target"}, {name: "match"}, {name: "cmp"}}, Use{}},
	} {
		if got := effect(tc.rule); got != tc.want {
			t.Errorf("%s: changes %#x, reads %#x; want %#x, %#x", tc.name, got.Changes, got.Reads, tc.want.Changes, tc.want.Reads)
		}
	}
}

func TestABlobThatIsNoneIsRefused(t *testing.T) {
	entry := make([]byte, layout4.elements+header+8)
	binary.NativeEndian.PutUint16(entry[layout4.targetAt:], uint16(layout4.elements))
	binary.NativeEndian.PutUint16(entry[layout4.nextAt:], uint16(len(entry)))
	b := blob{entries: entry, layout: layout4}
	if _, err := b.users("here"); err != nil {
		t.Errorf("one entry: %v", err)
	}
	for n := range entry {
		b.entries = entry[:n]
		if _, err := b.users("here"); n > 0 && err == nil {
			t.Errorf("the first %d bytes of an entry are taken for one", n)
		}
	}
	for _, at := range []int{layout4.targetAt, layout4.nextAt} {
		for _, n := range []uint16{0, 1, 0xffff} {
			damaged := slices.Clone(entry)
			binary.NativeEndian.PutUint16(damaged[at:], n)
			b.entries = damaged
			if _, err := b.users("here"); err == nil {
				t.Errorf("%d at %d is believed", n, at)
			}
		}
	}
}

func TestOfTheUsersThoseOfSomeBits(t *testing.T) {
	users := []User{{"a", Use{Changes: 0xff0, Reads: 1}}, {"b", Use{Reads: 0x1000}}, {"c", Use{Changes: 0x4000}}}
	got := Of(users, 0x1c00|0x010)
	if len(got) != 2 || got[0].String() != "a changes bits 0x00000c10" || got[1].String() != "b reads bits 0x00001000" {
		t.Errorf("%q", got)
	}
}
