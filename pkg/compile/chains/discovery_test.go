package chains

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

func TestDiscoveryIsFound(t *testing.T) {
	own, gateway, group := netip.MustParseAddr("fd00::7"), netip.MustParseAddr("fe80::ecee:eeff:feee:eeee"), netip.MustParseAddr("ff02::1:ffee:eeee")
	message := func(dst netip.Addr, limit uint8, l4 testutil.Layer4, headers ...testutil.Extension) []byte {
		return testutil.Packet{Src: own, Dst: dst, TTL: limit, L4: l4, Extensions: headers, Payload: make([]byte, 24)}.IP()
	}
	of := func(kind uint8) testutil.Layer4 { return testutil.ICMP{Type: kind} }
	for name, c := range map[string]struct {
		packet        []byte
		solicits, own bool
	}{
		"a solicitation":                    {message(group, 255, of(135)), true, true},
		"an advertisement to all nodes":     {message(netip.MustParseAddr("ff02::1"), 255, of(136)), true, true},
		"a solicitation to the gateway":     {message(gateway, 255, of(135)), false, true},
		"an advertisement to a pod":         {message(own, 255, of(136)), false, true},
		"one that a router has forwarded":   {message(group, 254, of(135)), false, false},
		"one to another scope":              {message(netip.MustParseAddr("ff05::1:ffee:eeee"), 255, of(135)), false, true},
		"one behind a header":               {message(group, 255, of(135), testutil.Extension{Header: 60, Body: make([]byte, 6)}), false, false},
		"a router advertisement":            {message(group, 255, of(134)), false, false},
		"a redirect":                        {message(group, 255, of(137)), false, false},
		"an echo request":                   {message(group, 255, of(128)), false, false},
		"a datagram from port 34560 (8700)": {message(group, 255, testutil.UDP{SrcPort: 135 << 8, DstPort: 1}), false, false},
	} {
		if got := run(t, solicits(), c.packet) != 0; got != c.solicits {
			t.Errorf("%s, from a pod: found %v, want %v", name, got, c.solicits)
		}
		if got := run(t, exceptDiscovery(), c.packet) == 0; got != c.own {
			t.Errorf("%s, of the node: found %v, want %v", name, got, c.own)
		}
	}
}
