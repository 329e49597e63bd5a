package bpf_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// TestFragmentsMadeOnTheWayAreNotTheNodesOwn: a node with connection tracking puts datagrams together and cuts them
// again, and IPv6 then forgets by which interface they came. Only what a socket of the node sends is the node's own.
func TestFragmentsMadeOnTheWayAreNotTheNodesOwn(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	testutil.RequireCommand(t, "nft")
	node := labtest.Node(t, labtest.New(t), "node")
	from, to := labtest.Pod(t, node, "from"), labtest.Pod(t, node, "to")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if out, err := node.Run(ctx, "table inet t { chain c { type filter hook forward priority 0; ct state invalid counter; }; }",
		"nft", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	ep := bpf.Endpoint{Ifindex: uint32(to.IfIndex()), Flags: bpf.EPReady, Addr4: to.Addr4().As4(), Addr6: to.Addr6().As16()}
	w.publish(t, &ep, word(slotDeny, 1), word(slotAllow, 1))
	attachTo(t, node, to.IfIndex(), w.Programs[bpf.MargayProgToPod], ebpf.AttachTCXEgress)
	server, err := echo.ListenUDP(to.Host, 53)
	if err != nil {
		t.Fatal(err)
	}
	for i, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6 %v", v6), func(t *testing.T) {
			before := server.Received()
			w.publish(t, &ep, word(slotDeny, uint32(4*i+2)), word(slotAllow, 1))
			p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), L4: testutil.UDP{SrcPort: 1000, DstPort: 53},
				Payload: bytes.Repeat([]byte("x"), 3000), ID: 7}
			send := func(fragments [][]byte) {
				t.Helper()
				for i := range fragments {
					fragments[i] = fragments[i][14:]
				}
				if err := traffic.SendIP(from, fragments...); err != nil {
					t.Fatal(err)
				}
			}
			fragments := p.Fragments(400)
			if v6 {
				// Headers that only the first one has do not fit into the others, so the node makes new ones.
				long := p
				long.Extensions = []testutil.Extension{{Header: 60, Body: append([]byte{1, 28}, make([]byte, 28)...)}}
				fragments[0] = long.Fragments(400)[0]
			}
			send(fragments)
			testutil.WaitFor(t, time.Minute, "the datagram to be dropped", func() bool {
				return w.drops(t)[bpf.DropKey{Ifindex: ep.Ifindex, Reason: uint16(bpf.MargayDropReasonDROP_POLICY), ToPod: 1}].Packets > 0
			})
			// The node's own large datagram passes whatever the policy is.
			own, err := traffic.OpenUDP(node.Host, server.Addr4())
			if v6 {
				own, err = traffic.OpenUDP(node.Host, server.Addr6())
			}
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			if _, err := own.Write(make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
			testutil.WaitFor(t, time.Minute, "the node's datagram", func() bool { return server.Received() == before+1 })
			w.forget(t)
			// And the same fragments as before, once policy allows them.
			w.publish(t, &ep, word(slotAllow, uint32(4*i+3)), word(slotAllow, 1))
			p.ID = 8
			send(p.Fragments(400))
			testutil.WaitFor(t, time.Minute, "the allowed datagram", func() bool { return server.Received() == before+2 })
			w.forget(t)
		})
	}
}
