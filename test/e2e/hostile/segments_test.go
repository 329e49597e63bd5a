package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// segmented is a frame of TCP behind a header that asks for segments of so many bytes each (PACKET_VNET_HDR).
func segmented(frame []byte, kind byte, transport uint16, size int) []byte {
	const header, checksum = 20, 16
	b := []byte{needsChecksum, kind}
	for _, v := range []uint16{transport + header, uint16(size), transport, checksum} {
		b = binary.NativeEndian.AppendUint16(b, v)
	}
	return append(b, frame...)
}

// A pod with a raw socket has the node's kernel make segments of one byte each of a packet of 64,000, where the device of the node does not
// do that. The CPU did nothing else for 70 ms then, and others' packets waited for it.
func TestFewSegmentsAreMadeOfAPacket(t *testing.T) {
	testcluster.NeedsBPF(t, "no match of iptables sees how many segments a packet becomes: docs/security.md says so")
	s := newScene(t)
	unaided(t, s.n1.Host, "eth0")
	at := s.watch(s.ext.Host)
	sender := openSender(t, s.m)
	if err := sender.Offload(); err != nil {
		t.Fatal(err)
	}
	const length = 60_000
	families(t, func(t *testing.T, v6 bool) {
		transport, tcp := uint16(ipv4Transport), byte(segmentTCP4)
		if v6 {
			transport, tcp = ipv6Transport, segmentTCP6
		}
		for size, want := range map[int]bool{1400: true, length / 960: true, length / 1100: false, 1: false} {
			k := s.tokens.next()
			p := s.from(s.m, s.ext, v6, testutil.TCP{SrcPort: 1000, DstPort: 80, Flags: testutil.ACK})
			p.Payload = bytes.Repeat(k.bytes(), length/len(k.bytes()))
			if err := sender.Send([][]byte{segmented(frame(s.m, p), tcp, transport, size)}); err != nil {
				t.Fatal(err)
			}
			s.expect(t, fmt.Sprintf("segments of %d bytes", size), k, want, at)
		}
	})
}
