package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// differenceRow describes a packet that is judged wrongly.
func differenceRow(id model.EndpointID, d model.Direction, f *verify.Difference) inspect.DifferenceRow {
	row := inspect.DifferenceRow{Namespace: id.Namespace, Name: id.Name, Direction: d.String(), Packet: packetText(f.Packet),
		Evaluator: f.Evaluator, Want: decisionText(f.Want, ""), Got: decisionText(f.Got, "s")}
	if f.Want.Allow == f.Got.Allow && f.Want.By == f.Got.By {
		row.Want += onTheWay(f.Want)
		row.Got += onTheWay(f.Got)
	}
	row.Text = fmt.Sprintf("%s %s: %s: the %s %s, should %s", id, d, row.Packet, f.Evaluator, row.Got, row.Want)
	return row
}

// decisionText describes a decision; s is the ending of its verb.
func decisionText(d verify.Decision, s string) string {
	verb := "denie" + s
	if s == "" {
		verb = "deny"
	}
	if d.Allow {
		verb = "allow" + s
	}
	verb += " it"
	if d.By == "" {
		return verb + " by no known rule"
	}
	return verb + " by " + d.By
}

func onTheWay(d verify.Decision) string {
	var parts []string
	if len(d.Passed) > 0 {
		parts = append(parts, "passed by "+strings.Join(d.Passed, ", "))
	}
	if len(d.Logged) > 0 {
		parts = append(parts, "logged by "+strings.Join(d.Logged, ", "))
	}
	return " (" + strings.Join(append(parts, "then decided"), ", ") + ")"
}

func packetText(p model.Packet) string {
	protocol := model.ProtocolName(p.Protocol)
	switch {
	case model.HasPorts(p.Protocol):
		return fmt.Sprintf("%s -> %s %s", netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort), protocol)
	case slices.Contains([]uint8{model.ProtoICMP, model.ProtoICMPv6}, p.Protocol) && (p.Protocol == model.ProtoICMP) == p.Src.Is4():
		return fmt.Sprintf("%s -> %s %s type %d code %d", p.Src, p.Dst, protocol, p.ICMPType, p.ICMPCode)
	}
	return fmt.Sprintf("%s -> %s protocol %s", p.Src, p.Dst, protocol)
}
