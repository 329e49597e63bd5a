package hostile

import (
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// Where fields are in a frame without VLAN tags, IP options and extension headers.
const (
	ipv4Transport = 14 + 20
	ipv6Transport = 14 + 40
	ipv6Source    = 14 + 8
	ipv6Dest      = 14 + 24
)

// unfinished is a packet of pod m whose checksum is filled in when it leaves the node, behind all hooks: the sum of the bytes from
// start on, offset bytes behind that.
type unfinished struct {
	what          string
	packet        testutil.Packet
	start, offset uint16
	want          bool
}

// A pod with a raw socket says where the checksum of its packet is to be filled in. At the checksum's own place that is what every
// stack does. Elsewhere the packet that is judged is not the one that leaves the node.
func TestAChecksumIsWrittenOverNothingThatIsJudged(t *testing.T) {
	testcluster.NeedsBPF(t, "the iptables dataplane does not see where a checksum goes: docs/security.md says so")
	s := newScene(t)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress], 
  egress: [{ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}, {port: 53, protocol: SCTP}]}]}`)
	s.AwaitPolicies(s.m, 0, 1)
	at := s.watch(s.ext.Host)
	families(t, func(t *testing.T, v6 bool) {
		l4 := uint16(ipv4Transport)
		if v6 {
			l4 = ipv6Transport
		}
		udp := s.from(s.m, s.ext, v6, testutil.UDP{SrcPort: 1000, DstPort: 53})
		tcp := s.from(s.m, s.ext, v6, testutil.TCP{SrcPort: 1000, DstPort: 53, Flags: testutil.SYN})
		sctp := s.from(s.m, s.ext, v6, testutil.SCTP{SrcPort: 1000, DstPort: 53})
		list := []unfinished{
			{"a datagram", udp, l4, 6, true},
			{"a segment", tcp, l4, 16, true},
			{"what a tunnel in the payload may have", udp, l4 + 8, 24, true},
			{"a datagram's source port", udp, l4, 0, false},
			{"a datagram's port", udp, l4, 2, false},
			{"a datagram's length", udp, l4, 4, false},
			{"a segment's port", tcp, l4, 2, false},
			{"a segment's flags", tcp, l4, 12, false},
			{"a segment's port, counted from before it", tcp, l4 - 8, 10, false},
			{"the type of an SCTP chunk", sctp, l4, 12, false},
		}
		if v6 {
			list = append(list, unfinished{"the destination", udp, ipv6Dest, 14, false}, unfinished{"the source", udp, ipv6Source, 14, false})
		}
		tokens := make([]token, len(list))
		for i, u := range list {
			tokens[i] = s.tokens.next()
			u.packet.Payload = append(tokens[i].bytes(), make([]byte, 16)...)
			if err := traffic.SendUnfinished(s.m.Host, "eth0", frame(s.m, u.packet), u.start, u.offset); err != nil {
				t.Fatal(u.what, err)
			}
		}
		for i, u := range list {
			s.expect(t, u.what, tokens[i], u.want, at)
		}
	})
}
