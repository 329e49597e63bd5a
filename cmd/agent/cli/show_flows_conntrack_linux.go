package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/node"
)

// conntrackPatience bounds the time for reading the policy that iptables enforces, the wait for the lock included.
const conntrackPatience = 30 * time.Second

// byIPTables reports whether the iptables dataplane enforces here: its sets exist, and there are no BPF maps. Chains and sets belong to no
// instance, whichever the agent has.
func (f *instanceFlags) byIPTables() bool {
	if _, err := os.Stat(bpfmaps.InstanceDir(f.bpffs, f.instance)); err == nil {
		return false
	}
	left, err := node.IPTablesLeft()
	return left && err == nil
}

// trackedRows returns the rows of the kernel's table of connections. This process reads the table, without the agent.
func (f *instanceFlags) trackedRows(ctx context.Context) ([]flowRow, error) {
	sets, err := ipsets.Open()
	if err != nil {
		return nil, err
	}
	defer sets.Close()
	limited, cancel := context.WithTimeout(ctx, conntrackPatience)
	defer cancel()
	tools, err := node.IPTablesTools(limited)
	if err != nil {
		return nil, err
	}
	enforced, err := iptables.ReadEnforced(limited, tools, sets)
	if err != nil {
		return nil, err
	}
	routes, err := attach.RoutesOut(attach.WatchOptions{}, further.Interfaces(enforced.Listed))
	if err != nil {
		return nil, err
	}
	enforced.Routed = further.New(enforced.Listed, routes)
	table, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	defer table.Close()
	r := trackedReader{enforced: enforced, names: f.names(ctx, nil), timeouts: kernelTimeouts(), node: map[netip.Addr]bool{}}
	own, _ := net.InterfaceAddrs() // without them, no flow has the flag from-host
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			r.node[p.Addr().Unmap()] = true
		}
	}
	rows := []flowRow{}
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		err = errors.Join(err, table.Dump(family, conntrack.Filter{}, func(e conntrack.Entry) {
			if row, ok := r.row(e); ok {
				rows = append(rows, row)
			}
		}))
	}
	sortFlows(rows)
	return rows, err
}

// trackedReader turns entries of the kernel's table of connections into rows.
type trackedReader struct {
	enforced *iptables.Enforced
	names    names
	node     map[netip.Addr]bool // the node's own addresses
	timeouts func(setting string) (time.Duration, bool)
}

// row returns the row of an entry; not ok: neither end is a pod of this node.
func (r *trackedReader) row(e conntrack.Entry) (flowRow, bool) {
	c, ok := r.enforced.Read(e)
	if !ok {
		return flowRow{}, false
	}
	// The end that the opener sends to, and the end that answers; they differ if the address is translated.
	to, backend := netip.AddrPortFrom(c.Opener.Dst, c.Opener.DstPort), netip.AddrPortFrom(c.Responder.Src, c.Responder.SrcPort)
	proto := c.Opener.Protocol
	row := flowRow{
		Protocol: explain.ProtocolName(proto), Opener: endText(proto, netip.AddrPortFrom(c.Opener.Src, c.Opener.SrcPort)), Responder: endText(proto, to),
		OpenerName: r.name(c, c.Opener.Src), ResponderName: r.name(c, backend.Addr()),
		State: trackedState(c, e), Age: r.age(e), Flags: []string{},
		Egress: r.stamp(c, c.Opener.Src), Ingress: r.stamp(c, backend.Addr()),
	}
	if proto == model.ProtoICMP || proto == model.ProtoICMPv6 {
		row.ICMP = fmt.Sprintf("%d/%d", c.Opener.ICMPType, c.Opener.ICMPCode)
	}
	if to != backend && e.Status&conntrack.DstNAT != 0 && !c.Turned {
		row.Backend = endText(proto, backend)
	}
	for _, f := range []struct {
		on   bool
		text string
	}{
		{r.node[c.Opener.Src], "from-host"}, {c.Opener.Src == backend.Addr(), "self"}, {row.Backend != "", "translated"}, {c.Turned, "mid-flow"},
	} {
		if f.on {
			row.Flags = append(row.Flags, f.text)
		}
	}
	return row, true
}

// name returns the name of the pod with an address, or of the one that the address belongs to as a further source.
func (r *trackedReader) name(c iptables.Connection, a netip.Addr) string {
	if name := r.names.byAddr[a]; name != "" || c.Lone {
		return name
	}
	return r.names.behind(r.enforced.Interface(a))
}

// stamp is the word for whether the policy in force has judged the side of the pod with an address.
func (r *trackedReader) stamp(c iptables.Connection, a netip.Addr) string {
	switch {
	case !c.Judged || r.enforced.Interface(a) == "":
		return "-"
	case c.Current:
		return "current"
	}
	return "stale"
}

// trackedState returns a connection's state in one word, one of those for flows in BPF mode.
func trackedState(c iptables.Connection, e conntrack.Entry) string {
	switch {
	case c.Denied:
		return "revoked"
	case e.Original.Protocol != model.ProtoTCP && e.Status&conntrack.Assured != 0:
		return "open"
	case e.Original.Protocol != model.ProtoTCP && e.Status&conntrack.SeenReply != 0:
		return "answered"
	case e.Original.Protocol != model.ProtoTCP:
		return "new"
	}
	switch e.TCPState {
	case conntrack.TCPSynReceived:
		return "answered"
	case conntrack.TCPEstablished:
		return "open"
	case conntrack.TCPFinWait, conntrack.TCPCloseWait:
		return "closing"
	case conntrack.TCPLastAck, conntrack.TCPTimeWait:
		return "closed"
	case conntrack.TCPClose:
		return "reset"
	}
	return "new"
}

// tcpSettings are the kernel's settings of time-outs of TCP, by state.
var tcpSettings = [...]string{conntrack.TCPSynSent: "syn_sent", conntrack.TCPSynReceived: "syn_recv", conntrack.TCPEstablished: "established",
	conntrack.TCPFinWait: "fin_wait", conntrack.TCPCloseWait: "close_wait", conntrack.TCPLastAck: "last_ack", conntrack.TCPTimeWait: "time_wait",
	conntrack.TCPClose: "close"}

// tcpShortSettings are of time-outs that the kernel uses in any state of TCP if they are shorter: with data that is not acknowledged, and
// after many retransmissions or with a window of 0.
var tcpShortSettings = [...]string{"tcp_timeout_unacknowledged", "tcp_timeout_max_retrans"}

// age returns the time since the last packet in seconds: the node's time-out, which each packet starts again, less the remaining time
// of the entry. It is nil if the setting is not known, or if the kernel uses another time-out for the entry or may do so: an entry does not
// say which one that is.
func (r *trackedReader) age(e conntrack.Entry) *float64 {
	setting := "generic_timeout"
	switch e.Original.Protocol {
	case model.ProtoTCP:
		if int(e.TCPState) < len(tcpSettings) {
			setting = "tcp_timeout_" + tcpSettings[e.TCPState]
		}
	case model.ProtoUDP:
		setting = "udp_timeout"
		if e.Status&conntrack.Assured != 0 {
			setting = "udp_timeout_stream"
		}
	case model.ProtoICMP:
		setting = "icmp_timeout"
	case model.ProtoICMPv6:
		setting = "icmpv6_timeout"
	}
	whole, ok := r.timeouts(setting)
	if !ok || whole < e.Timeout {
		return nil
	}
	if e.Original.Protocol == model.ProtoTCP {
		for _, setting := range tcpShortSettings {
			if short, ok := r.timeouts(setting); ok && short < whole && e.Timeout <= short {
				return nil
			}
		}
	}
	return new((whole - e.Timeout).Seconds())
}

// kernelTimeouts returns a function that reads settings of this network namespace, each of them once.
func kernelTimeouts() func(setting string) (time.Duration, bool) {
	type value struct {
		timeout time.Duration
		ok      bool
	}
	known := map[string]value{}
	return func(setting string) (time.Duration, bool) {
		v, read := known[setting]
		if !read {
			v.timeout, v.ok = kernelTimeout(setting)
			known[setting] = v
		}
		return v.timeout, v.ok
	}
}

func kernelTimeout(setting string) (time.Duration, bool) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_" + setting)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return time.Duration(n) * time.Second, err == nil
}
