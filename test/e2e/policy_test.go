package e2e

import (
	"bytes"
	"context"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

var oneNode = []string{"a"}

// Ingress policy admits by label, on one node and across two, and spares what it does not select.
func TestNetworkPolicyIsEnforced(t *testing.T) {
	c := newCluster(t, []string{"a", "b"})
	db := c.Pod(c.Node(0), "db")
	near, far := c.Pod(c.Node(0), "near", "role: api"), c.Pod(c.Node(1), "far", "role: api")
	other := c.Pod(c.Node(0), "other", "role: other")
	away := c.Pod(c.Node(1), "away", "role: other")
	for _, p := range []*lab.Pod{db, near} {
		c.Serve(p.Host, 80)
		c.Serve(p.Host, 81)
	}
	everybody := []*lab.Pod{near, far, other, away}
	for _, p := range everybody {
		c.Reach(p.Host, db.Host, 80, true)
		c.Reach(p.Host, db.Host, 0, true)
	}

	c.Policy("db", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{
  from: [{podSelector: {matchLabels: {role: api}}}], ports: [{port: http}, {port: 80, protocol: UDP}]}]}`)
	c.AwaitPolicies(db, 1, 0)
	for _, p := range everybody {
		admitted := p == near || p == far
		c.Reach(p.Host, db.Host, 80, admitted)
		c.Reach(p.Host, db.Host, 81, false)
		c.Reach(p.Host, db.Host, 0, false)
		c.Reach(db.Host, near.Host, 81, true)
	}
	c.Reach(c.Node(0).Host, db.Host, 81, true) // the pod's own node

	c.Remove("policy-db")
	c.AwaitPolicies(db, 0, 0)
	for _, p := range everybody {
		c.Reach(p.Host, db.Host, 81, true)
	}
}

func TestEgressPolicyAndTheOutside(t *testing.T) {
	c := newCluster(t, oneNode)
	out := c.External("out")
	web, peer := c.Pod(c.Node(0), "web"), c.Pod(c.Node(0), "peer")
	for _, h := range []*lab.Host{out.Host, peer.Host, web.Host, c.Node(0).Host} {
		c.Serve(h, 80)
	}
	c.Reach(out.Host, web.Host, 80, true)
	c.Reach(web.Host, out.Host, 80, true)

	c.Policy("web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [
  {ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]}`)
	c.AwaitPolicies(web, 0, 1)
	c.Reach(web.Host, out.Host, 80, true)
	c.Reach(web.Host, peer.Host, 80, false)
	c.Reach(web.Host, c.Node(0).Host, 80, false) // pod to host is egress like any other
	c.Reach(out.Host, web.Host, 80, true)        // answers are no egress
	c.Reach(peer.Host, web.Host, 80, true)
}

// D-18: a pod nobody has told the agent of gets nothing through, in either direction; once it is known it does.
func TestUnknownPodIsClosed(t *testing.T) {
	c := newCluster(t, oneNode)
	out := c.External("out")
	known := c.Pod(c.Node(0), "known")
	unknown := c.Plug(c.Node(0), "unknown")
	for _, h := range []*lab.Host{known.Host, unknown.Host, out.Host, c.Node(0).Host} {
		c.Serve(h, 80)
	}
	for _, h := range []*lab.Host{known.Host, out.Host, c.Node(0).Host} {
		c.Reach(unknown.Host, h, 80, false)
	}
	c.Reach(known.Host, unknown.Host, 80, false)
	c.Reach(out.Host, unknown.Host, 80, false)
	c.Declare(unknown)
	c.AwaitEndpoint(unknown)
	for _, h := range []*lab.Host{known.Host, out.Host, c.Node(0).Host} {
		c.Reach(unknown.Host, h, 80, true)
		c.Reach(h, unknown.Host, 80, true)
	}
}

// A pod cannot send under another's address, and what it sends itself arrives.
func TestSpoofedSourcesAreDropped(t *testing.T) {
	c := newCluster(t, oneNode)
	liar, victim, target := c.Pod(c.Node(0), "liar"), c.Pod(c.Node(0), "victim"), c.Pod(c.Node(0), "target")
	_, udp := c.Serve(target.Host, 53)
	for _, v6 := range []bool{false, true} {
		before := udp.Received()
		p := testutil.Packet{
			Src: victim.Addr(v6), Dst: target.Addr(v6),
			L4: testutil.UDP{SrcPort: 1000, DstPort: 53}, Payload: []byte("mine?"),
		}
		honest := p
		honest.Src = liar.Addr(v6)
		if err := traffic.SendIP(liar, p.IP(), honest.IP()); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, soon, "the honest datagram", func() bool { return udp.Received() > before })
		if got := udp.Received() - before; got != 1 {
			t.Errorf("%d datagrams arrived, want only the honest one", got)
		}
	}
}

// Everything of a fragmented datagram follows its first fragment: admitted together, or nothing arrives.
func TestFragmentsFollowTheirFirst(t *testing.T) {
	c := newCluster(t, oneNode)
	from, to := c.Pod(c.Node(0), "from"), c.Pod(c.Node(0), "to")
	c.Policy("to", `{podSelector: {matchLabels: {app: to}}, ingress: [{ports: [{port: 53, protocol: UDP}]}]}`)
	c.AwaitPolicies(to, 1, 0)
	_, admitted := c.Serve(to.Host, 53)
	_, denied := c.Serve(to.Host, 54)
	seen, err := traffic.OpenCapture(to.Host, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i, v6 := range []bool{false, true} {
		for _, port := range []uint16{54, 53} {
			p := testutil.Packet{
				Src: from.Addr(v6), Dst: to.Addr(v6), ID: uint32(port) + 1, L4: testutil.UDP{SrcPort: 1, DstPort: port},
				Payload: make([]byte, 1200),
			}
			for _, frame := range p.Fragments(400) {
				if err := traffic.SendIP(from, frame[14:]); err != nil {
					t.Fatal(err)
				}
			}
		}
		testutil.WaitFor(t, soon, "the admitted datagram", func() bool { return admitted.Received() == uint64(i+1) })
	}
	if denied.Received() != 0 {
		t.Error("a denied datagram arrived")
	}
	ctx, cancel := context.WithTimeout(context.Background(), never)
	defer cancel()
	if f, err := seen.Wait(ctx, func(f []byte) bool { // by source and identification, 55, of the denied ones
		if f[12] == 0x86 {
			return len(f) > 62 && bytes.Equal(f[22:38], from.Addr6().AsSlice()) && f[20] == testutil.ProtoFragment && f[61] == 55
		}
		return len(f) > 38 && bytes.Equal(f[26:30], from.Addr4().AsSlice()) && f[23] == testutil.ProtoUDP && f[19] == 55
	}); err == nil {
		t.Errorf("a fragment of a denied datagram arrived: %x", f[:60])
	}
}

// Policy is about addresses in force now: the address of a pod that went away gives its successor nothing.
func TestAddressTakenOverByAnotherPod(t *testing.T) {
	c := newCluster(t, oneNode)
	db := c.Pod(c.Node(0), "db")
	c.Serve(db.Host, 80)
	c.Policy("db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {role: api}}}]}]}`)
	c.AwaitPolicies(db, 1, 0)
	addrs := []netip.Addr{netip.MustParseAddr("10.65.1.99"), netip.MustParseAddr("fd65:0:0:1::99")}
	for i := range 3 {
		for _, tc := range []struct {
			name, label string
			admitted    bool
		}{{"api", "role: api", true}, {"thief", "role: thief", false}} {
			p := c.Plug(c.Node(0), tc.name, addrs...)
			c.Declare(p, tc.label)
			c.AwaitEndpoint(p)
			c.Reach(p.Host, db.Host, 80, tc.admitted)
			if err := c.Node(0).DelPod(p); err != nil {
				t.Fatal(err)
			}
			c.Remove("pod-" + tc.name)
		}
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}
