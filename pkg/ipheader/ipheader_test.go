package ipheader

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

func TestPacketsAreReadBehindTheirExtensionHeaders(t *testing.T) {
	options := []testutil.Extension{{Header: 0, Body: make([]byte, 6)}, {Header: 60, Body: make([]byte, 14)}, {Header: 51, Body: make([]byte, 10)}}
	for name, c := range map[string]struct {
		packet testutil.Packet
		later  bool
	}{
		"IPv4":              {testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.UDP{SrcPort: 1, DstPort: 2}), false},
		"IPv6":              {testutil.FromTo("fd00::1", "fd00::2", testutil.UDP{SrcPort: 1, DstPort: 2}), false},
		"options":           {testutil.Packet{Options: make([]byte, 8), Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), L4: testutil.UDP{SrcPort: 1, DstPort: 2}}, false},
		"extension headers": {testutil.Packet{Extensions: options, Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), L4: testutil.UDP{SrcPort: 1, DstPort: 2}}, false},
	} {
		c.packet.Payload = []byte("payload")
		whole := c.packet.IP()
		p, err := Parse(whole)
		if err != nil || p.Src != c.packet.Src || p.Dst != c.packet.Dst || p.Protocol != testutil.ProtoUDP || p.Later || p.Length != 15 ||
			!bytes.Equal(p.Transport, whole[len(whole)-15:]) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if cut, err := Parse(whole[:len(whole)-5]); err != nil || cut.Length != 15 || len(cut.Transport) != 10 {
			t.Errorf("%s, cut off: %+v, %v", name, cut, err)
		}
		for i := range whole { // no length makes it panic
			_, _ = Parse(whole[:i])
		}
		for i, fragment := range c.packet.Fragments(8) {
			if p, err := Parse(fragment[14:]); err != nil || p.Later != (i > 0) || p.Protocol != testutil.ProtoUDP {
				t.Errorf("%s, fragment %d: %+v, %v", name, i, p, err)
			}
		}
	}
}

func TestWhatIsNoIPPacketIsRefused(t *testing.T) {
	whole := testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.UDP{}).IP()
	short := bytes.Clone(whole)
	short[0] = 0x44
	long := bytes.Clone(whole)
	long[0] = 0x4f
	total := bytes.Clone(whole)
	total[2], total[3] = 0, 10
	for name, b := range map[string][]byte{"nothing": nil, "version 5": append([]byte{0x50}, whole[1:]...), "a short header": short, "a header beyond the end": long,
		"a total length within the header": total} {
		if _, err := Parse(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(testutil.FromTo("10.0.0.1", "10.0.0.2", testutil.UDP{}).IP())
	f.Add(testutil.FromTo("fd00::1", "fd00::2", testutil.UDP{}).IP())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := Parse(b); err == nil && (len(p.Transport) > p.Length || !p.Src.IsValid()) {
			t.Errorf("%+v", p)
		}
	})
}
