package hostile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/conntrack"
)

// What it means in BPF mode that the agent removes a connection from the kernel's table, whose room is short: programs know the flow
// further on. Nothing is lost of a flow between two pods, whichever end sends next. A connection through a Service may get another
// backend, which is judged for itself (D-21).
func TestAConnectionRemovedFromTheKernelsTable(t *testing.T) {
	testcluster.NeedsBPF(t, "there the next packet is judged as the first one")
	testutil.RequireCommand(t, "iptables-restore")
	for _, mode := range []string{"judge", "strict"} {
		t.Run(mode, func(t *testing.T) {
			s := newScene(t, "--mid-flow", mode)
			s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress, Egress], egress: [{
			  to: [{podSelector: {matchLabels: {app: c}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
			s.Policy("c", `{podSelector: {matchLabels: {app: c}}, policyTypes: [Ingress, Egress], ingress: [{
			  from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
			s.AwaitPolicies(s.a, 1, 1)
			s.AwaitPolicies(s.c, 1, 1)
			s.forgetFlows(0)
			s.forgetFlows(1)
			for _, command := range []string{"iptables-restore", "ip6tables-restore"} { // as kube-proxy does
				if _, err := s.n1.Run(t.Context(), "*filter\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n", command, "--noflush", "--wait"); err != nil {
					t.Fatal(err)
				}
			}
			muteStack(t, s.a)
			muteStack(t, s.c)
			r := &removals{scene: s, atA: s.watch(s.a.Host), atC: s.watch(s.c.Host), atM: s.watch(s.m.Host)}
			families(t, func(t *testing.T, v6 bool) {
				for _, protocol := range []string{"tcp", "udp"} {
					t.Run(protocol, func(t *testing.T) {
						r.direct(t, v6, protocol)
						r.throughService(t, v6, protocol)
					})
				}
			})
		})
	}
}

// removals are connections of shop/a with shop/c that are removed from the table of the first node.
type removals struct {
	*scene
	atA, atC, atM *witness
	port          uint16 // of shop/a, as last used
}

// talk is one connection: the frames of both ends.
type talk struct {
	protocol string
	a, c     netip.AddrPort
	front    netip.AddrPort // where shop/a sends to
}

func (r *removals) begin(t *testing.T, v6 bool, protocol string, front netip.AddrPort) talk {
	t.Helper()
	r.port++
	k := talk{protocol: protocol, a: netip.AddrPortFrom(r.a.Addr(v6), 20000+r.port), c: netip.AddrPortFrom(r.c.Addr(v6), 80), front: front}
	if !front.IsValid() {
		k.front = k.c
	}
	r.fromA(t, k, "the first packet", testutil.SYN, true, r.atC)
	r.fromC(t, k, "its answer", testutil.SYN|testutil.ACK, true)
	r.fromA(t, k, "the packet after that", testutil.ACK, true, r.atC)
	return k
}

func (r *removals) fromA(t *testing.T, k talk, what string, flags uint8, want bool, at *witness) {
	t.Helper()
	r.play(t, []attack{{what: "from shop/a, " + what, from: r.a, frames: bearing(r.a, k.packet(k.a, k.front, flags)), want: want}}, at)
}

func (r *removals) fromC(t *testing.T, k talk, what string, flags uint8, want bool) {
	t.Helper()
	r.play(t, []attack{{what: "from shop/c, " + what, from: r.c, frames: bearing(r.c, k.packet(k.c, k.a, flags)), want: want}}, r.atA)
}

// packet is one of the connection; flags are those of TCP.
func (k talk) packet(from, to netip.AddrPort, flags uint8) testutil.Packet {
	p := testutil.Packet{Src: from.Addr(), Dst: to.Addr(), L4: testutil.UDP{SrcPort: from.Port(), DstPort: to.Port()}}
	if k.protocol == "tcp" {
		tcp := testutil.TCP{SrcPort: from.Port(), DstPort: to.Port(), Flags: flags}
		if flags&testutil.ACK != 0 {
			tcp.Ack = 1
		}
		if flags&testutil.SYN == 0 {
			tcp.Seq = 1
		}
		p.L4 = tcp
	}
	return p
}

// remove removes the connection from the table of the first node, as the agent does.
func (r *removals) remove(t *testing.T, k talk) {
	t.Helper()
	var table *conntrack.Conn
	if err := r.n1.Do(func() (err error) { table, err = conntrack.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	testutil.WaitFor(t, soon, "the kernel to have the connection", func() bool {
		var list []conntrack.Entry
		err := table.Dump(conntrack.Both, conntrack.Filter{}, func(e conntrack.Entry) {
			for _, one := range []conntrack.Tuple{e.Original, e.Reply} {
				if one.Src == k.a.Addr() && one.SrcPort == k.a.Port() {
					list = append(list, e)
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(list) > 0 && !slices.ContainsFunc(table.Delete(list), func(err error) bool { return err != nil })
	})
}

func (r *removals) direct(t *testing.T, v6 bool, protocol string) {
	k := r.begin(t, v6, protocol, netip.AddrPort{})
	for range 2 {
		r.remove(t, k)
		r.fromA(t, k, "after the removal", testutil.PSH|testutil.ACK, true, r.atC)
		r.remove(t, k)
		r.fromC(t, k, "after the removal", testutil.PSH|testutil.ACK, true)
	}
	r.remove(t, k)
	r.forgetFlows(0)
	// Only the flow that programs know has let the answer pass: no policy does.
	r.fromC(t, k, "of a flow that is not known", testutil.PSH|testutil.ACK, false)
}

func (r *removals) throughService(t *testing.T, v6 bool, protocol string) {
	vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.20"), true: netip.MustParseAddr("fd96::20")}[v6]
	front := netip.AddrPortFrom(vip, 8000+r.port)
	r.service(fmt.Sprintf("%s-%t", protocol, v6), front, protocol, netip.AddrPortFrom(r.c.Addr(v6), 80))
	early := talk{protocol: protocol, a: netip.AddrPortFrom(r.a.Addr(v6), 19999)}
	testutil.WaitFor(t, soon, "the Service to be known", func() bool {
		token := r.tokens.next()
		send(t, r.a, bearing(r.a, early.packet(early.a, front, testutil.SYN))(token)...)
		return r.arrives(token, never, []*witness{r.atC}) != nil
	})
	k := r.begin(t, v6, protocol, front)
	r.remove(t, k)
	r.fromA(t, k, "after the removal, to the same backend", testutil.PSH|testutil.ACK, true, r.atC)
	r.remove(t, k)
	r.fromC(t, k, "which is not translated after the removal", testutil.PSH|testutil.ACK, false)
	r.remove(t, k)
	r.translate(front, protocol, netip.AddrPortFrom(r.m.Addr(v6), 80))
	for range 2 {
		r.fromA(t, k, "after the removal, to a backend that policy denies", testutil.PSH|testutil.ACK, false, r.atM)
	}
	k.front = netip.AddrPortFrom(r.m.Addr(v6), 80)
	r.fromA(t, k, "to that backend itself", testutil.SYN, false, r.atM)
}
