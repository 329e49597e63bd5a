package tcpreset

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// resetsFor are the resets for the receiver of a packet, which is dst.
func resetsFor(packet []byte) (dst netip.Addr, resets [][]byte, err error) {
	s, err := parse(packet)
	if err != nil {
		return dst, nil, err
	}
	return s.dst, s.resets(), nil
}

func TestAResetHasTheSequenceNumberThatItsReceiverExpects(t *testing.T) {
	for name, c := range map[string]struct {
		src, dst string
		tcp      testutil.TCP
		payload  string
		want     []uint32
	}{
		"data":          {"10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK}, "some data", []uint32{1000}},
		"pure ACK":      {"10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK}, "", []uint32{1000, 1001}},
		"one byte":      {"10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK}, "x", []uint32{1000, 1001}},
		"FIN":           {"10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK | testutil.FIN}, "", []uint32{1000, 1001}},
		"FIN with data": {"10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK | testutil.FIN}, "x", []uint32{1000}},
		"IPv6":          {"fd00::1", "fd00::2", testutil.TCP{Flags: testutil.ACK}, "some data", []uint32{1000}},
	} {
		c.tcp.SrcPort, c.tcp.DstPort, c.tcp.Seq = 40000, 80, 1000
		p := testutil.FromTo(c.src, c.dst, c.tcp)
		p.Payload = []byte(c.payload)
		packet := p.IP()
		for _, copied := range [][]byte{packet, packet[:min(len(packet), 60)]} {
			dst, resets, err := resetsFor(copied)
			if err != nil || dst.String() != c.dst || len(resets) != len(c.want) {
				t.Fatalf("%s: %v, %d resets, %v", name, dst, len(resets), err)
			}
			for i, r := range resets {
				want := testutil.FromTo(c.src, c.dst, testutil.TCP{SrcPort: 40000, DstPort: 80, Seq: c.want[i], Flags: testutil.RST})
				got, err := parse(r)
				expected, _ := parse(want.IP()) // a packet of our own
				if err != nil || got != expected {
					t.Errorf("%s: %+v, %v; want %+v", name, got, err, expected)
				}
				if !valid(r) {
					t.Errorf("%s: a checksum is wrong: %x", name, r)
				}
			}
		}
	}
}

// valid checks the checksums of a packet without payload: with its checksum each sums up to zero.
func valid(b []byte) bool {
	src, dst, tcp := b[8:24], b[24:40], b[len(b)-20:]
	if b[0]>>4 == 4 {
		if checksum(b[:20]) != 0 {
			return false
		}
		src, dst = b[12:16], b[16:20]
	}
	return checksum(src, dst, []byte{0, 6, 0, 20}, tcp) == 0 && int(binary.BigEndian.Uint16(tcp[12:])&0x3f) == flagRST
}

func TestExtensionHeadersOfIPv6ArePassed(t *testing.T) {
	p := testutil.FromTo("fd00::1", "fd00::2", testutil.TCP{SrcPort: 1, DstPort: 2, Seq: 7, Flags: testutil.ACK})
	p.Extensions = []testutil.Extension{{Header: 0, Body: make([]byte, 6)}, {Header: 60, Body: make([]byte, 14)}, {Header: 51, Body: make([]byte, 10)}}
	p.Payload = []byte("data of the packet")
	if _, resets, err := resetsFor(p.IP()); err != nil || len(resets) != 1 {
		t.Errorf("%d, %v", len(resets), err)
	}
}

func TestWhatIsNoBeginningOfATCPPacketIsRefused(t *testing.T) {
	tcp := testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK})
	later := tcp
	later.FragmentOffset = 8
	later6 := testutil.FromTo("fd00::1", "fd00::2", testutil.TCP{Flags: testutil.ACK})
	later6.FragmentOffset = 8
	for name, b := range map[string][]byte{
		"nothing": nil, "another version": append([]byte{0x50}, make([]byte, 60)...), "UDP": testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.UDP{}).IP(),
		"a later fragment": later.IP(), "a later fragment of IPv6": later6.IP(), "cut off in TCP's header": tcp.IP()[:30],
		"a short header": append([]byte{0x41}, tcp.IP()[1:]...), "IPv6 cut off": later6.IP()[:39],
	} {
		if _, _, err := resetsFor(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	whole := testutil.FromTo("fd00::1", "fd00::2", testutil.TCP{Flags: testutil.ACK}).IP()
	for i := range whole { // no length makes it panic
		_, _, _ = resetsFor(whole[:i])
		_, _, _ = resetsFor(tcp.IP()[:min(i, 40)])
	}
}

func FuzzResets(f *testing.F) {
	f.Add(testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.TCP{Flags: testutil.ACK}).IP())
	f.Add(testutil.FromTo("fd00::1", "fd00::2", testutil.TCP{Flags: testutil.ACK}).IP())
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, resets, err := resetsFor(b); err == nil && len(resets) == 0 {
			t.Error("no reset and no error")
		}
	})
}
