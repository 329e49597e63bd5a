package testutil

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// frame joins hex written in pieces.
func frame(t *testing.T, pieces ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(pieces, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const macs = "020000000002 020000000001"

// The wanted bytes are written out by hand, checksums by adding up 16-bit words; the lab's tests have the kernel
// accept the same packets.
func TestPacketBytes(t *testing.T) {
	tests := []struct {
		name string
		p    Packet
		want []string
	}{
		{
			"ipv4 udp",
			FromTo("10.0.0.1", "10.0.0.2", UDP{SrcPort: 1, DstPort: 2}),
			[]string{macs, "0800", "4500001c 00000000 4011 66cf 0a000001 0a000002", "0001 0002 0008 ebd8"},
		},
		{
			"ipv4 fragment with options and TTL",
			Packet{
				Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), TTL: 1, ID: 7, Protocol: 17,
				Options: []byte{1}, FragmentOffset: 16, MoreFragments: true, Payload: []byte{0xab},
			},
			[]string{macs, "0800", "46000019 00072002 0111 83c9 0a000001 0a000002 01000000", "ab"},
		},
		{
			"ipv6 tcp behind hop-by-hop and fragment headers",
			Packet{
				Src: netip.MustParseAddr("::1"), Dst: netip.MustParseAddr("::2"), ID: 5, Fragmented: true,
				Extensions: []Extension{{Header: 0, Body: []byte{1, 4, 0, 0, 0, 0}}},
				L4:         TCP{SrcPort: 1, DstPort: 2, Flags: SYN | ACK, Seq: 1, Ack: 2, Window: 3},
			},
			[]string{
				macs, "86dd", "60000000 0024 00 40", "00000000000000000000000000000001 00000000000000000000000000000002",
				"2c00 010400000000", "0600 0000 00000005",
				"0001 0002 00000001 00000002 5012 0003 afc7 0000",
			},
		},
		{
			"vlan tag and truncation",
			Packet{
				Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), VLAN: 5,
				L4: UDP{}, Truncate: 20,
			},
			[]string{macs, "8100 0005 0800 4500"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(frame(t, tc.want...), tc.p.Bytes()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestFragmentsCoverTheTransport(t *testing.T) {
	for _, p := range []Packet{
		FromTo("10.0.0.1", "10.0.0.2", UDP{SrcPort: 1, DstPort: 2}),
		FromTo("fd00::1", "fd00::2", UDP{SrcPort: 1, DstPort: 2}),
	} {
		p.Payload, p.ID = make([]byte, 92), 9 // 100 bytes with the header
		whole := p.transport()
		var joined []byte
		frames := p.Fragments(48)
		for i, f := range frames {
			header, offset, more := 14+20, 0, false
			if p.Src.Is6() {
				header = 14 + 40 + 8
				field := binary.BigEndian.Uint16(f[header-6:])
				offset, more = int(field&^7), field&1 != 0
			} else {
				field := binary.BigEndian.Uint16(f[14+6:])
				offset, more = int(field&0x1fff)*8, field&0x2000 != 0
			}
			if offset != len(joined) || more != (i < len(frames)-1) {
				t.Errorf("%v fragment %d: offset %d, more %v", p.Src, i, offset, more)
			}
			joined = append(joined, f[header:]...)
		}
		if len(frames) != 3 {
			t.Errorf("%v: %d fragments, want 3", p.Src, len(frames))
		}
		if d := cmp.Diff(whole, joined); d != "" {
			t.Error(d)
		}
	}
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	p := FromTo("10.0.0.1", "10.0.0.2", UDP{SrcPort: 1, DstPort: 2})
	p.Payload = []byte{0, 0}
	sum := p.transport()[6:8]
	p.Payload = append([]byte(nil), sum...) // adding the checksum itself makes the sum zero
	if got := p.transport()[6:8]; got[0] != 0xff || got[1] != 0xff {
		t.Errorf("checksum %x, want ffff: 0 means that there is none", got)
	}
}
