package chains

import (
	"fmt"
	"math/bits"
)

// DefaultMask has the bits of marks that are used by default.
const DefaultMask uint32 = 0xffff0000

// minBits is the smallest number of bits in a mask: 9 of a number and three flags.
const minBits = 12

// maxNumberBits is the greatest number of bits of a number: a tree over more would be too deep for the kernel, see NFT.
const maxNumberBits = 15

// Marks is the layout of our bits in marks. In the mark of a packet, only while it is in our chains, they are a number, first that of
// a slot and then that of a class, and the flags allow, against and midflow. In the mark of a connection they are the generation of
// the policy that judged it, in the bits of number and allow, and the flags turned and passed. One comparison finds the connections that
// policy has allowed, by passed; a connection with a generation and without passed is denied by it. Make one by NewMarks.
type Marks struct {
	mask  uint32
	shift int
	width int // of a number
}

// MaskError reports that a mask of marks cannot be used.
type MaskError struct {
	Mask   uint32
	Reason string
}

func (e *MaskError) Error() string { return fmt.Sprintf("mark mask %#x: %s", e.Mask, e.Reason) }

// NewMarks divides a mask, which must be one run of at least 12 bits. The error is a *MaskError.
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

// Mask returns all bits.
func (m Marks) Mask() uint32 { return m.mask }

// Most returns the greatest number, which bounds the slots and the classes of addresses. Numbers begin at 1.
func (m Marks) Most() uint32 { return 1<<m.width - 1 }

// Generations in the marks of connections. Those of policies begin at FirstGeneration.
const (
	NeverJudged uint32 = 0
	// ToBeJudged is that of connections that some policy has allowed, and which the policy in force is to judge again. Without the flag
	// passed it is the mark Lone, so a policy that denied a flow under this number would seem to have left it alone.
	ToBeJudged      uint32 = 1
	FirstGeneration uint32 = 2
)

// MostGeneration returns the greatest generation.
func (m Marks) MostGeneration() uint32 { return 1<<(m.width+1) - 1 }

// RangeError reports that a number does not fit its bits.
type RangeError struct {
	What         string
	Number, Most uint32
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%s %d: marks have room for 1 to %d", e.What, e.Number, e.Most)
}

// Value is a change of a mark, for example by an entry of a set: the bits in Mask become those of Value. SET changes bits by xor, so
// bits of Value beyond Mask would toggle flags; a Value has no such bits.
type Value struct{ Value, Mask uint32 }

func (v Value) String() string { return fmt.Sprintf("%#x/%#x", v.Value, v.Mask) }

// Slot returns the value of an entry of the sets of egress and ingress slots. It also clears the allow flag. The error is a
// *RangeError.
func (m Marks) Slot(number uint32) (Value, error) {
	if err := m.check("slot", number); err != nil {
		return Value{}, err
	}
	return Value{number << m.shift, m.number() | m.allow()}, nil
}

// Class returns the value of an entry of the set of classes. The number in the mark is the class's id plus 1. The error is a
// *RangeError.
func (m Marks) Class(id uint32) (Value, error) {
	if id >= m.Most() {
		return Value{}, &RangeError{"class", id, m.Most() - 1}
	}
	return Value{(id + 1) << m.shift, m.number()}, nil
}

// Generation returns the mark of connections that policy of the generation has allowed. The error is a *RangeError.
func (m Marks) Generation(g uint32) (Value, error) {
	if g == NeverJudged || g > m.MostGeneration() {
		return Value{}, &RangeError{"generation", g, m.MostGeneration()}
	}
	return Value{g<<m.shift | m.passed(), m.generation() | m.passed()}, nil
}

// Lone returns the mark of connections that a packet judged alone has begun: the packet says nothing about who opened the flow. No
// policy has this generation.
func (m Marks) Lone() Value { return Value{ToBeJudged << m.shift, m.generation() | m.passed()} }

// IsLone reports whether the mark of a connection is that of Lone.
func (m Marks) IsLone(mark uint32) bool { v := m.Lone(); return mark&v.Mask == v.Value }

// denies returns the mark of connections that policy denies, given that of those which the same policy allows.
func (m Marks) denies(allowed Value) Value { return Value{allowed.Value &^ m.passed(), allowed.Mask} }

// GenerationOf returns the generation in the mark of a connection, and the flags there: the first packet on record was an answer,
// and policy of that generation denies the connection.
func (m Marks) GenerationOf(connmark uint32) (g uint32, turned, denied bool) {
	g = connmark & m.generation() >> m.shift
	return g, connmark&m.turned() != 0, g != 0 && connmark&m.passed() == 0
}

func (m Marks) check(what string, number uint32) error {
	if number == 0 || number > m.Most() {
		return &RangeError{what, number, m.Most()}
	}
	return nil
}

// Flags returns two bits of packet marks: a slot has allowed the packet, and the packet goes against its flow.
func (m Marks) Flags() (allow, against uint32) { return m.allow(), m.against() }

// Bits of packet marks.
func (m Marks) number() uint32  { return (1<<m.width - 1) << m.shift }
func (m Marks) allow() uint32   { return 1 << (m.shift + m.width) }
func (m Marks) against() uint32 { return 2 << (m.shift + m.width) }
func (m Marks) midflow() uint32 { return 4 << (m.shift + m.width) }

// Bits of connection marks.
func (m Marks) generation() uint32 { return m.number() | m.allow() }
func (m Marks) turned() uint32     { return m.against() }
func (m Marks) passed() uint32     { return m.midflow() }

// ClassOf returns the class of a value that Class has made.
func (m Marks) ClassOf(value uint32) uint32 { return value&m.number()>>m.shift - 1 }
