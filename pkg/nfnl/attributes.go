package nfnl

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

const (
	attributeHeader = 4
	typeMask        = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// Encoder appends attributes to a buffer. Numbers are written in network byte order, as netfilter has them. The zero value is
// ready.
type Encoder struct {
	// Order is or-ed to the type of each number: unix.NLA_F_NET_BYTEORDER for subsystems that demand the flag.
	Order uint16

	b []byte
}

// Bytes returns what was written; it is valid until the next write.
func (e *Encoder) Bytes() []byte { return e.b }

// Len is the number of bytes written.
func (e *Encoder) Len() int { return len(e.b) }

// Truncate drops what was written after the first n bytes.
func (e *Encoder) Truncate(n int) { e.b = e.b[:n] }

func (e *Encoder) header(kind uint16, payload int) {
	e.b = binary.NativeEndian.AppendUint16(e.b, uint16(attributeHeader+payload))
	e.b = binary.NativeEndian.AppendUint16(e.b, kind)
}

func (e *Encoder) pad() {
	for len(e.b)%4 != 0 {
		e.b = append(e.b, 0)
	}
}

// Uint8 writes a number of 8 bits, which has no byte order.
func (e *Encoder) Uint8(kind uint16, v uint8) {
	e.header(kind, 1)
	e.b = append(e.b, v)
	e.pad()
}

// Uint16 writes a number of 16 bits.
func (e *Encoder) Uint16(kind uint16, v uint16) {
	e.header(kind|e.Order, 2)
	e.b = binary.BigEndian.AppendUint16(e.b, v)
	e.pad()
}

// Uint32 writes a number of 32 bits.
func (e *Encoder) Uint32(kind uint16, v uint32) {
	e.header(kind|e.Order, 4)
	e.b = binary.BigEndian.AppendUint32(e.b, v)
}

// Uint64 writes a number of 64 bits.
func (e *Encoder) Uint64(kind uint16, v uint64) {
	e.header(kind|e.Order, 8)
	e.b = binary.BigEndian.AppendUint64(e.b, v)
}

// Raw writes bytes as they are; with the flag Order if they are a number, such as an address.
func (e *Encoder) Raw(kind uint16, v []byte) {
	e.header(kind, len(v))
	e.b = append(e.b, v...)
	e.pad()
}

// String writes a string with a final zero byte.
func (e *Encoder) String(kind uint16, v string) {
	e.header(kind, len(v)+1)
	e.b = append(append(e.b, v...), 0)
	e.pad()
}

// Nest begins an attribute that contains attributes. End ends it; start is the argument for End.
func (e *Encoder) Nest(kind uint16) (start int) {
	start = len(e.b)
	e.header(kind|unix.NLA_F_NESTED, 0)
	return start
}

// End ends the attribute that Nest began. Such an attribute must not exceed 65,535 bytes.
func (e *Encoder) End(start int) {
	binary.NativeEndian.PutUint16(e.b[start:], uint16(len(e.b)-start))
}

// Attributes yields type (without its flags) and payload of each attribute in b. It ends at the first malformed one.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= attributeHeader {
			size := int(binary.NativeEndian.Uint16(b))
			if size < attributeHeader || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&typeMask, b[attributeHeader:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// Find returns the payload of the first attribute of b with the types of path, one inside the other; nil: there is none.
func Find(b []byte, path ...uint16) []byte {
	for _, want := range path {
		var found []byte
		for kind, payload := range Attributes(b) {
			if kind == want {
				found = payload
				break
			}
		}
		if found == nil {
			return nil
		}
		b = found
	}
	return b
}

// Uint8 reads a number; 0 if the payload is too short, or nil because Find found no attribute.
func Uint8(b []byte) uint8 {
	if len(b) < 1 {
		return 0
	}
	return b[0]
}

// Uint16 reads a number in network byte order; 0 if the payload is too short.
func Uint16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// Uint32 reads a number in network byte order; 0 if the payload is too short.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// Uint64 reads a number in network byte order; 0 if the payload is too short.
func Uint64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// String reads a string up to its zero byte.
func String(b []byte) string { return unix.ByteSliceToString(b) }
