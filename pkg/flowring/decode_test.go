package flowring

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/flows"
)

// pinned are rules as they are in maps: rule 1 and 2 have names, rule 9's cannot be read; slot 4 has two entries.
type pinned struct{}

func (pinned) Rule(id uint32) (string, bool, error) {
	switch id {
	case 1:
		return "default/knp/shop/db#ingress[0]", true, nil
	case 2:
		return "no-profile-match", true, nil
	case 3:
		return "profile/kns.shop#egress[0]", true, nil
	case 9:
		return "", false, errors.New("no memory")
	}
	return "", false, nil
}

func (pinned) ReadRules(slot uint32) ([]bpf.Rule, error) {
	if slot != 4 {
		return nil, errors.New("no such slot")
	}
	return []bpf.Rule{{Id: 1}, {Id: 2}}, nil
}

func TestDecode(t *testing.T) {
	v4 := func(a string) (b [16]byte) { copy(b[:], netip.MustParseAddr(a).AsSlice()); return b }
	port := netip.MustParseAddrPort
	at := time.Date(2026, 11, 22, 4, 5, 6, 0, time.UTC)
	flag := func(flags ...bpf.MargayEventFlags) (sum uint8) {
		for _, f := range flags {
			sum |= uint8(f)
		}
		return sum
	}
	ingress, ipv6 := bpf.MargayEventFlagsEVENT_INGRESS, bpf.MargayEventFlagsEVENT_IPV6
	tests := map[string]struct {
		event bpf.Event
		want  flows.Record
	}{
		"allowed by a rule": {
			bpf.Event{RuleId: 1, Flags: flag(ingress), Proto: 6, Sport: 4242, Dport: 80, Src: v4("10.0.0.1"), Dst: v4("10.0.0.2"), Suppressed: 3},
			flows.Record{
				Direction: "ingress", Verdict: "allow", Suppressed: 3,
				Packet:   flows.Packet{Protocol: "tcp", Src: port("10.0.0.1:4242"), Dst: port("10.0.0.2:80")},
				Decision: flows.Decision{Policy: "default/knp/shop/db", Rule: "default/knp/shop/db#ingress[0]"},
			},
		},
		"denied by no policy, IPv6": {
			bpf.Event{RuleId: 2, Reason: uint16(bpf.MargayDropReasonDROP_POLICY), Flags: flag(ipv6), Proto: 17, Sport: 5, Dport: 53,
				Src: v4("2001:db8::1"), Dst: v4("2001:db8::2")},
			flows.Record{
				Direction: "egress", Verdict: "deny",
				Packet:   flows.Packet{Protocol: "udp", Src: port("[2001:db8::1]:5"), Dst: port("[2001:db8::2]:53")},
				Decision: flows.Decision{Rule: "no-profile-match"},
			},
		},
		"allowed by a profile": {
			bpf.Event{RuleId: 3, Proto: 6, Src: v4("10.0.0.1"), Dst: v4("10.0.0.2")},
			flows.Record{
				Direction: "egress", Verdict: "allow",
				Packet:   flows.Packet{Protocol: "tcp", Src: port("10.0.0.1:0"), Dst: port("10.0.0.2:0")},
				Decision: flows.Decision{Rule: "profile/kns.shop#egress[0]"},
			},
		},
		"ICMP has a type instead of ports": {
			bpf.Event{Proto: 1, Sport: 7, Dport: 8<<8 | 1, Src: v4("10.0.0.1"), Dst: v4("10.0.0.2")},
			flows.Record{
				Direction: "egress", Verdict: "allow",
				Packet:   flows.Packet{Protocol: "icmp", ICMP: &flows.ICMP{Type: 8, Code: 1}, Src: port("10.0.0.1:0"), Dst: port("10.0.0.2:0")},
				Decision: flows.Decision{Rule: "no rule"},
			},
		},
		"a protocol without ports": {
			bpf.Event{Proto: 47, Sport: 1, Dport: 1, Src: v4("10.0.0.1"), Dst: v4("10.0.0.2")},
			flows.Record{
				Direction: "egress", Verdict: "allow",
				Packet:   flows.Packet{Protocol: "47", Src: port("10.0.0.1:0"), Dst: port("10.0.0.2:0")},
				Decision: flows.Decision{Rule: "no rule"},
			},
		},
		"a trace": {
			bpf.Event{Proto: 6, RuleId: 1, Slot: 4, Generation: 8, Nlogs: 1, Log: [4]uint16{1}, Npasses: 2, Pass: [6]uint16{0, 7},
				Src: v4("10.0.0.1"), Dst: v4("10.0.0.2")},
			flows.Record{
				Direction: "egress", Verdict: "allow",
				Packet:   flows.Packet{Protocol: "tcp", Src: port("10.0.0.1:0"), Dst: port("10.0.0.2:0")},
				Decision: flows.Decision{Policy: "default/knp/shop/db", Rule: "default/knp/shop/db#ingress[0]", Trace: &flows.Trace{Logged: []string{"no-profile-match"}, Passed: []string{"default/knp/shop/db#ingress[0]", "entry 7, which is gone"}}},
			},
		},
		"what was pinned is gone": {
			bpf.Event{Proto: 6, RuleId: 5, Slot: 6, Nlogs: 1, Reason: uint16(bpf.MargayDropReasonDROP_NO_TABLE),
				Flags: flag(bpf.MargayEventFlagsEVENT_REJUDGED, bpf.MargayEventFlagsEVENT_TRANSLATED), Src: v4("10.0.0.1"), Dst: v4("10.0.0.2")},
			flows.Record{
				Direction: "egress", Verdict: "deny",
				Packet:   flows.Packet{Protocol: "tcp", Src: port("10.0.0.1:0"), Dst: port("10.0.0.2:0")},
				Decision: flows.Decision{Rule: "rule 5, which is gone", Note: "judged again, after translation, compiled policy incomplete or missing", Trace: &flows.Trace{Logged: []string{"entry 0, which is gone"}}},
			},
		},
		"a name that cannot be read": {
			bpf.Event{Proto: 6, RuleId: 9, Flags: flag(bpf.MargayEventFlagsEVENT_REVOKED), Reason: uint16(bpf.MargayDropReasonDROP_POLICY),
				Src: v4("10.0.0.1"), Dst: v4("10.0.0.2")},
			flows.Record{
				Direction: "egress", Verdict: "deny",
				Packet:   flows.Packet{Protocol: "tcp", Src: port("10.0.0.1:0"), Dst: port("10.0.0.2:0")},
				Decision: flows.Decision{Rule: "rule 9, whose name cannot be read", Note: "revoked"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.want.Time = at
			got := newDecoder(pinned{}, pinned{}).record(&tt.event, at)
			if diff := cmp.Diff(&tt.want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
