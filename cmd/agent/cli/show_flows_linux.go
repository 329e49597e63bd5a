package cli

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// flowRow is one tracked flow. Ports are left out where the protocol has none.
type flowRow struct {
	Protocol      string   `json:"protocol"`
	Opener        string   `json:"opener"`
	OpenerName    string   `json:"openerName,omitempty"`
	Responder     string   `json:"responder"`
	ResponderName string   `json:"responderName,omitempty"`
	ICMP          string   `json:"icmp,omitempty"`    // type/code of the first packet
	Backend       string   `json:"backend,omitempty"` // what egress policy judged, if it is not the responder's address
	State         string   `json:"state"`
	Age           *float64 `json:"ageSeconds,omitempty"` // since the last packet; nil: not known
	Egress        string   `json:"egress"`               // of the opener: judged under the policy in force (current) or an earlier one (stale)
	Ingress       string   `json:"ingress"`              // of the responder
	Flags         []string `json:"flags"`
}

func showFlowsCommand() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use: "flows", Aliases: []string{"flow", "connections", "ct"}, Short: "Tracked flows, from the kernel", Args: noArguments("pod"),
		Long: `Tracked flows, the ones with the latest packets first.

EGRESS is the opener's and INGRESS the responder's side: current means that it was judged under the policy in force,
stale that its next packet will be judged again, gone that its pod is, and - that it is not ours to judge. With
iptables, flows are the kernel's tracked connections, and one to a Service is one row.`,
	}
	o.register(cmd.Flags(), "namespace", "pod", "sort-by")
	return showList(&o, cmd, listing[flowRow]{
		read: func(cmd *cobra.Command, _ []string) ([]flowRow, error) {
			if o.byIPTables() {
				return o.trackedRows(cmd.Context())
			}
			m, err := o.openMaps(cmd.Context())
			if err != nil {
				return nil, err
			}
			defer m.Close()
			return flowRows(m, o.names(cmd.Context(), m))
		},
		keep:  func(r *flowRow) bool { return o.selectsName(r.OpenerName) || o.selectsName(r.ResponderName) },
		table: flowTable,
	})
}

// flowReader turns entries of the connection table into rows.
type flowReader struct {
	names     names
	clock     clock
	endpoints map[netip.Addr]bpf.Endpoint // by their first address of each family
	other     func(netip.Addr) (bpf.Endpoint, bool)
}

func flowRows(m *bpfmaps.Maps, n names) ([]flowRow, error) {
	now, err := kernelClock()
	if err != nil {
		return nil, err
	}
	endpoints, err := m.OpenEndpoints()
	if err != nil {
		return nil, err
	}
	defer endpoints.Close()
	r := flowReader{names: n, clock: now, endpoints: map[netip.Addr]bpf.Endpoint{}}
	for _, e := range endpoints.List() {
		r.endpoints[netip.AddrFrom4(e.Addr4)], r.endpoints[netip.AddrFrom16(e.Addr6)] = e, e
	}
	r.other = func(a netip.Addr) (bpf.Endpoint, bool) {
		info, ok, err := m.Addresses.Lookup(a)
		if err != nil || !ok || info.Flags&bpf.AddrEndpoint == 0 {
			return bpf.Endpoint{}, false
		}
		return endpoints.Get(info.Ifindex)
	}
	rows := []flowRow{}
	for flow, err := range m.Flows.All() {
		if err != nil {
			return nil, err
		}
		rows = append(rows, r.row(flow))
	}
	sortFlows(rows)
	return rows, nil
}

// sortFlows puts those with the latest packets first, and those whose age is not known last.
func sortFlows(rows []flowRow) {
	age := func(r *flowRow) float64 {
		if r.Age == nil {
			return math.Inf(1)
		}
		return *r.Age
	}
	slices.SortStableFunc(rows, func(a, b flowRow) int {
		return cmp.Or(cmp.Compare(age(&a), age(&b)), cmp.Compare(a.Opener, b.Opener), cmp.Compare(a.Responder, b.Responder))
	})
}

func (r *flowReader) row(f bpfmaps.Flow) flowRow {
	opener, responder := f.A, f.B
	if f.Entry.Flags&uint8(bpf.MargayCtFlagsCT_OPENER_B) != 0 {
		opener, responder = f.B, f.A
	}
	row := flowRow{
		Protocol: explain.ProtocolName(f.Proto), Opener: endText(f.Proto, opener), Responder: endText(f.Proto, responder),
		OpenerName: r.names.byAddr[opener.Addr()], ResponderName: r.names.byAddr[responder.Addr()],
		State: stateText(&f.Entry), Age: new(r.clock.age(f.Entry.Seen).Seconds()), Flags: flagTexts(f.Entry.Flags),
	}
	if f.Proto == model.ProtoICMP || f.Proto == model.ProtoICMPv6 {
		row.ICMP = fmt.Sprintf("%d/%d", f.Entry.L4>>8, f.Entry.L4&255)
	}
	if f.Entry.Flags&uint8(bpf.MargayCtFlagsCT_TRANSLATED) != 0 {
		backend := netip.AddrFrom16(f.Entry.Backend)
		if opener.Addr().Is4() {
			backend = netip.AddrFrom4([4]byte(f.Entry.Backend[:4]))
		}
		row.Backend = endText(f.Proto, netip.AddrPortFrom(backend, f.Entry.L4))
	}
	row.Egress = r.stamp(f.Entry.Egress, opener.Addr(), model.Egress)
	row.Ingress = r.stamp(f.Entry.Ingress, responder.Addr(), model.Ingress)
	return row
}

func endText(proto uint8, end netip.AddrPort) string {
	if model.HasPorts(proto) {
		return end.String()
	}
	return end.Addr().String()
}

// stamp says whether one side was judged under the policy in force.
func (r *flowReader) stamp(stamp uint32, addr netip.Addr, d model.Direction) string {
	if stamp == 0 {
		return "-"
	}
	if stamp&uint32(bpf.MargayCtStampRESET_AT) != 0 {
		return "reset"
	}
	e, ok := r.endpoints[addr]
	if !ok {
		if e, ok = r.other(addr); !ok {
			return "gone"
		}
	}
	word := e.Ingress
	if d == model.Egress {
		word = e.Egress
	}
	if _, generation := bpfmaps.SplitPolicyWord(word); generation == stamp {
		return "current"
	}
	return "stale"
}

// stateText is a flow's state in one word. A flow that is not TCP and that a change forbids has no state for it, only no
// permission on either side.
func stateText(e *bpf.CtEntry) string {
	state := e.State
	const fins = uint8(bpf.MargayCtStateCT_FIN_OPENER | bpf.MargayCtStateCT_FIN_REPLY)
	has := func(bit bpf.MargayCtState) bool { return state&uint8(bit) != 0 }
	switch {
	case has(bpf.MargayCtStateCT_REVOKED), has(bpf.MargayCtStateCT_ONE_WAY) && e.Egress == 0 && e.Ingress == 0:
		return "revoked"
	case has(bpf.MargayCtStateCT_RST):
		return "reset"
	case state&fins == fins:
		return "closed"
	case state&fins != 0:
		return "closing"
	case has(bpf.MargayCtStateCT_OPEN):
		return "open"
	case has(bpf.MargayCtStateCT_REPLIED):
		return "answered"
	}
	return "new"
}

func flagTexts(flags uint8) []string {
	texts := []string{}
	for _, f := range []struct {
		bit  bpf.MargayCtFlags
		text string
	}{
		{bpf.MargayCtFlagsCT_FROM_HOST, "from-host"}, {bpf.MargayCtFlagsCT_SELF, "self"},
		{bpf.MargayCtFlagsCT_TRANSLATED, "translated"}, {bpf.MargayCtFlagsCT_SHORTCUT, "shortcut"},
		{bpf.MargayCtFlagsCT_MIDFLOW, "mid-flow"},
	} {
		if flags&uint8(f.bit) != 0 {
			texts = append(texts, f.text)
		}
	}
	return texts
}

// ageText is an age in the table.
func ageText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fs", *seconds)
}

func flowTable(rows []flowRow) *table {
	t := &table{
		header: []string{"PROTOCOL", "OPENER", "RESPONDER", "BACKEND", "STATE", "AGE", "EGRESS", "INGRESS", "FLAGS"},
		none:   "no flows are tracked",
	}
	for _, r := range rows {
		protocol := r.Protocol
		if r.ICMP != "" {
			protocol += " " + r.ICMP
		}
		t.add(protocol, named(r.Opener, r.OpenerName), named(r.Responder, r.ResponderName), r.Backend, r.State,
			ageText(r.Age), r.Egress, r.Ingress, strings.Join(r.Flags, ","))
	}
	return t
}

func named(end, name string) string {
	if name == "" {
		return end
	}
	return end + " (" + name + ")"
}

// clock is the coarse clock of the connection table: ticks of the kernel, shifted by 4.
type clock struct {
	now uint32
	hz  float64
}

// age is the time since seen. Another CPU may have seen a packet after now was read.
func (c clock) age(seen uint32) time.Duration {
	ticks := max(0, int32(c.now-seen))
	return time.Duration(float64(ticks) * 16 / c.hz * float64(time.Second))
}

// kernelClock reads the tick counter where the kernel shows it to root.
func kernelClock() (clock, error) {
	now, hz, err := bpfmaps.FlowClock()
	return clock{now, hz}, err
}
