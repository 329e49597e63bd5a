package hostile

import (
	"github.com/margay-project/margay/internal/testutil"
)

// pending reports whether that a packet arrived wrongly is a hole that is known and being closed. Each case goes with its
// fix; when none is left, so does this file.
func pending(d dissected) bool {
	opens := d.Protocol == testutil.ProtoTCP && !d.later && d.flags&(testutil.SYN|testutil.ACK) == testutil.SYN
	about, _ := dissect(d.body)
	switch {
	case d.isError() && about.Dst.IsLinkLocalUnicast(): // the node answers discovery with another's source
		return true
	case d.Protocol == testutil.ProtoTCP && !opens: // D-20: mid-flow TCP is believed to be an answer
		return true
	case d.isError() && about.Protocol == testutil.ProtoTCP: // errors about such
		return true
	case d.isTunnel(), d.later: // tunnels but IPIP and VXLAN, and by way of a Service; fragments of such
		return true
	case d.Dst.IsMulticast() || d.Dst == broadcast || d.Dst.IsLinkLocalUnicast(): // D-24: groups pass the host action; discovery with another's source
		return true
	}
	return false
}
