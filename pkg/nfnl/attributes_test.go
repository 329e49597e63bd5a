package nfnl

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAttributesAreReadAsTheyWereWritten(t *testing.T) {
	e := Encoder{Order: unix.NLA_F_NET_BYTEORDER}
	e.Uint8(1, 7)
	outer := e.Nest(2)
	e.Uint16(3, 0x1234)
	inner := e.Nest(4)
	e.Uint32(5, 0x12345678)
	e.Uint64(6, 0x123456789abcdef0)
	e.End(inner)
	e.End(outer)
	e.String(7, "name")
	e.Raw(8, []byte{1, 2, 3})
	b := e.Bytes()
	if len(b)%4 != 0 {
		t.Errorf("%d bytes are not padded", len(b))
	}
	if Uint8(Find(b, 1)) != 7 || Uint16(Find(b, 2, 3)) != 0x1234 || Uint32(Find(b, 2, 4, 5)) != 0x12345678 ||
		Uint64(Find(b, 2, 4, 6)) != 0x123456789abcdef0 || String(Find(b, 7)) != "name" || !bytes.Equal(Find(b, 8), []byte{1, 2, 3}) {
		t.Errorf("%x", b)
	}
	if Find(b, 2, 9) != nil || Find(b, 9, 1) != nil || Uint32(nil) != 0 || Uint64([]byte{1}) != 0 {
		t.Error("what is not there was found")
	}
}

func TestMalformedAttributesEndTheReading(t *testing.T) {
	var e Encoder
	e.Uint8(1, 7)
	good := e.Bytes()
	for name, tail := range map[string][]byte{
		"too short for a header": {1, 2, 3}, "length below its header": attribute(3, 0), "length beyond the buffer": attribute(100, 4),
		"length zero": attribute(0, 8),
	} {
		n := 0
		for range Attributes(append(bytes.Clone(good), tail...)) {
			n++
		}
		if n != 1 {
			t.Errorf("%s: %d attributes", name, n)
		}
	}
}

// attribute has a length that need not be true.
func attribute(length uint16, payload int) []byte {
	b := binary.NativeEndian.AppendUint16(nil, length)
	return append(binary.NativeEndian.AppendUint16(b, 2), make([]byte, payload)...)
}

func TestAnErrorOfTheKernelIsItsErrno(t *testing.T) {
	body := binary.NativeEndian.AppendUint32(nil, uint32(0xffffffff-uint32(unix.EPERM)+1))
	err := refusal(append(body, make([]byte, headerLen)...))
	if refused, ok := err.(*Refused); !ok || refused.Code != int(unix.EPERM) || !refused.Is(unix.EPERM) || refused.Is(unix.ENOENT) {
		t.Errorf("%v", err)
	}
	if refusal(make([]byte, 4)) != nil || refusal(nil) != nil {
		t.Error("an acknowledgement is an error")
	}
}

func FuzzAttributes(f *testing.F) {
	var e Encoder
	e.End(e.Nest(1))
	e.String(2, "x")
	f.Add(e.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		size := 0
		for _, payload := range Attributes(b) {
			size += attributeHeader + len(payload)
		}
		if size > len(b) {
			t.Errorf("%d bytes of attributes in %d", size, len(b))
		}
		Find(b, 1, 2, 3)
	})
}
