package diff

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/verify"
)

// everyPacket is the text of all protocols and ports.
const everyPacket = "every protocol and port"

var axisNames = [verify.Axes]string{"tcp", "udp", "sctp", "icmp", "icmpv6", "protocol"}

// otherProtocols is the number of protocols that have no axis of their own.
const otherProtocols = 256 - int(verify.AxisOther)

// portTexts describes the protocols and ports of changes between addresses of one family.
func portTexts(list []verify.Shift, family uint8) []string {
	var texts []string
	whole := [verify.Axes]bool{}
	others := 0
	for i := range list {
		s := &list[i]
		whole[s.Axis] = whole[s.Axis] || s.Axis != verify.AxisOther && isWhole(s, family)
		if s.Axis == verify.AxisOther {
			others += int(s.Hi) - int(s.Lo) + 1
		} else {
			texts = append(texts, portText(s, isWhole(s, family)))
		}
	}
	whole[verify.AxisOther] = others == otherProtocols
	if whole == [verify.Axes]bool{true, true, true, true, true, true} {
		return []string{everyPacket}
	}
	if whole[verify.AxisOther] {
		return append(texts, "other protocols")
	}
	for i := range list {
		if list[i].Axis == verify.AxisOther {
			texts = append(texts, portText(&list[i], false))
		}
	}
	return texts
}

// isWhole reports whether a change is of all packets of its protocol.
func isWhole(s *verify.Shift, family uint8) bool {
	if s.Axis == verify.AxisICMP && family == 6 || s.Axis == verify.AxisICMPv6 && family == 4 {
		return true // the other family's ICMP has no types
	}
	return s.Lo == 0 && s.Hi == 0xffff && s.Sources == nil
}

func portText(s *verify.Shift, whole bool) string {
	name := axisNames[s.Axis]
	switch {
	case whole && s.Axis > verify.AxisSCTP:
		return name
	case s.Axis == verify.AxisOther:
		return name + " " + span(s.Lo, s.Hi)
	case s.Axis > verify.AxisSCTP && s.Lo&0xff == 0 && s.Hi&0xff == 0xff:
		return name + " type " + span(s.Lo>>8, s.Hi>>8)
	case s.Axis > verify.AxisSCTP && s.Lo>>8 == s.Hi>>8:
		return fmt.Sprintf("%s type %d code %s", name, s.Lo>>8, span(s.Lo&0xff, s.Hi&0xff))
	case s.Axis > verify.AxisSCTP:
		return fmt.Sprintf("%s type %d code %d to type %d code %d", name, s.Lo>>8, s.Lo&0xff, s.Hi>>8, s.Hi&0xff)
	}
	text := name + " any port"
	if s.Lo > 0 || s.Hi < 0xffff {
		text = name + " " + span(max(s.Lo, min(1, s.Hi)), s.Hi) // no packet of interest has port 0
	}
	var sources []string
	for _, r := range s.Sources {
		sources = append(sources, span(r.Lo, r.Hi))
	}
	if len(sources) > 0 {
		text += " from source port " + strings.Join(sources, " and ")
	}
	return text
}

func span(lo, hi uint16) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d-%d", lo, hi)
}
