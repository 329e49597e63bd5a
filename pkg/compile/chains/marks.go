package chains

import (
	"fmt"
	"math/bits"
)

// DefaultMask are the bits of marks that are used unless the configuration says others.
const DefaultMask uint32 = 0xffff0000

// minBits is the least that a mask may have: 9 bits of a number and three flags.
const minBits = 12

// maxNumberBits is how many bits a number has at most: a tree over more would be too deep for the kernel, see NFT.
const maxNumberBits = 15

// Marks says which bits of marks are ours, and what they mean. In the mark of a packet, only while it is in our chains, they
// are a number, which is a slot's and then a class's, and the flags allow, against and midflow. In the mark of a connection
// they are the generation of policy that has allowed it, in the bits of number and allow, and the flags turned and denied.
type Marks struct {
	mask  uint32
	shift int
	width int // of a number
}

// MaskError says why a mask of marks cannot be used.
type MaskError struct {
	Mask   uint32
	Reason string
}

func (e *MaskError) Error() string { return fmt.Sprintf("mark mask %#x: %s", e.Mask, e.Reason) }

// NewMarks divides a mask. It must be one run of at least 12 bits.
func NewMarks(mask uint32) (Marks, error) {
	shift, ones := bits.TrailingZeros32(mask), bits.OnesCount32(mask)
	switch {
	case ones < minBits:
		return Marks{}, &MaskError{mask, fmt.Sprintf("it has %d bits, and at least %d are needed", ones, minBits)}
	case bits.Len32(mask)-shift != ones:
		return Marks{}, &MaskError{mask, "its bits are not next to each other"}
	}
	return Marks{mask: mask, shift: shift, width: min(ones-3, maxNumberBits)}, nil
}

// Mask are all bits.
func (m Marks) Mask() uint32 { return m.mask }

// Most is the greatest number; so many slots and so many classes of addresses there can be. 0 is no number.
func (m Marks) Most() uint32 { return 1<<m.width - 1 }

// MostGeneration is the greatest generation. 0 is that of connections that were never judged.
func (m Marks) MostGeneration() uint32 { return 1<<(m.width+1) - 1 }

// RangeError says that a number does not fit the bits that there are for it.
type RangeError struct {
	What         string
	Number, Most uint32
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%s %d: marks have room for 1 to %d", e.What, e.Number, e.Most)
}

// Value is what an entry of a set has to write into the mark: the bits in Mask become those of Value. SET replaces bits by
// xor, so a Value with bits beyond its Mask would toggle a flag; there is none.
type Value struct{ Value, Mask uint32 }

func (v Value) String() string { return fmt.Sprintf("%#x/%#x", v.Value, v.Mask) }

// Slot is the value of an entry of the sets of egress and ingress slots. It also clears the allow flag.
func (m Marks) Slot(number uint32) (Value, error) {
	if err := m.check("slot", number); err != nil {
		return Value{}, err
	}
	return Value{number << m.shift, m.number() | m.allow()}, nil
}

// Class is the value of an entry of the set of classes. The number in the mark is the class's id plus 1.
func (m Marks) Class(id uint32) (Value, error) {
	if id >= m.Most() {
		return Value{}, &RangeError{"class", id, m.Most() - 1}
	}
	return Value{(id + 1) << m.shift, m.number()}, nil
}

// Generation is the mark of connections that policy of the generation has allowed.
func (m Marks) Generation(g uint32) (Value, error) {
	if g == 0 || g > m.MostGeneration() {
		return Value{}, &RangeError{"generation", g, m.MostGeneration()}
	}
	return Value{g << m.shift, m.generation() | m.denied()}, nil
}

// GenerationOf is the generation in the mark of a connection, and what else is noted there: that the first packet on record
// came from who answers, and that policy of that generation denies it.
func (m Marks) GenerationOf(connmark uint32) (g uint32, turned, denied bool) {
	return connmark & m.generation() >> m.shift, connmark&m.turned() != 0, connmark&m.denied() != 0
}

func (m Marks) check(what string, number uint32) error {
	if number == 0 || number > m.Most() {
		return &RangeError{what, number, m.Most()}
	}
	return nil
}

// Flags are the bits of packet marks that say that a slot has allowed, and that the packet goes against its flow.
func (m Marks) Flags() (allow, against uint32) { return m.allow(), m.against() }

// Bits of packet marks.
func (m Marks) number() uint32  { return (1<<m.width - 1) << m.shift }
func (m Marks) allow() uint32   { return 1 << (m.shift + m.width) }
func (m Marks) against() uint32 { return 2 << (m.shift + m.width) }
func (m Marks) midflow() uint32 { return 4 << (m.shift + m.width) }

// Bits of connection marks.
func (m Marks) generation() uint32 { return m.number() | m.allow() }
func (m Marks) turned() uint32     { return m.against() }
func (m Marks) denied() uint32     { return m.midflow() }

// ClassOf is the class of the value of an entry that Class has made.
func (m Marks) ClassOf(value uint32) uint32 { return value&m.number()>>m.shift - 1 }
