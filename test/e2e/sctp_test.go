package e2e

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	sctpOpen   = `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80, protocol: SCTP}]}]}`
	sctpClosed = `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 9, protocol: SCTP}]}]}`
)

// association is one of real sockets between two pods.
type association struct{ client, server *traffic.SCTP }

// carries sends one message from the client and says whether it arrived.
func (a association) carries(t *testing.T, text string, within time.Duration) bool {
	t.Helper()
	if err := a.client.Send(text); err != nil {
		t.Fatal(err)
	}
	got, err := a.server.Receive(within)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return got == text
}

// sctpState is the state of the flow to port 80 of an address.
func sctpState(t *testing.T, m *bpfmaps.Maps, to netip.Addr) (state bpf.MargayCtState, known bool) {
	t.Helper()
	server := netip.AddrPortFrom(to, 80)
	for f, err := range m.Flows.All() {
		if err != nil {
			t.Fatal(err)
		}
		if f.Proto == testutil.ProtoSCTP && (f.A == server || f.B == server) {
			return bpf.MargayCtState(f.Entry.State), true
		}
	}
	return 0, false
}

// Real SCTP: policy admits by port; what a change denies is dropped without a word, so the association goes on if it is
// allowed again; one that ends expires soon.
func TestSCTPAssociationsFollowPolicy(t *testing.T) {
	testcluster.NeedsBPF(t, "it reads the states of flows in BPF maps")
	testutil.RequireKernel(t, "SCTP", traffic.SCTPMissing())
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) {
			c := newCluster(t, oneNode, "--timeout-tcp-fin", "1s")
			client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
			c.Policy("server", sctpOpen)
			c.AwaitPolicies(server, 1, 0)
			listeners := map[uint16]*traffic.SCTP{}
			for _, port := range []uint16{80, 81} {
				l, err := traffic.ListenSCTP(server.Host, netip.AddrPortFrom(server.Addr(v6), port))
				if err != nil {
					t.Fatal(err)
				}
				listeners[port] = l
			}
			if _, err := traffic.DialSCTP(client.Host, netip.AddrPortFrom(server.Addr(v6), 81), never); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("an association that policy denies: %v", err)
			}
			a := associate(t, client, listeners[80], netip.AddrPortFrom(server.Addr(v6), 80))
			if !a.carries(t, "one", soon) {
				t.Error("a message was lost")
			}
			flows := c.Agent(0).Maps()
			testSCTPRevoked(t, c, a, server, func() (bpf.MargayCtState, bool) { return sctpState(t, flows, server.Addr(v6)) })
			if err := a.client.Abort(); err != nil {
				t.Fatal(err)
			}
			testutil.WaitFor(t, 2*soon, "the association that has ended to expire", func() bool {
				_, known := sctpState(t, flows, server.Addr(v6))
				return !known
			})
		})
	}
}

func associate(t *testing.T, client *lab.Pod, listener *traffic.SCTP, to netip.AddrPort) association {
	t.Helper()
	near, err := traffic.DialSCTP(client.Host, to, soon)
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept(soon)
	if err != nil {
		t.Fatal(err)
	}
	return association{near, far}
}

// testSCTPRevoked denies an association and allows it again.
func testSCTPRevoked(t *testing.T, c *cluster, a association, server *lab.Pod, state func() (bpf.MargayCtState, bool)) {
	t.Helper()
	generation := c.Row(server).Ingress.Generation
	c.Policy("server", sctpClosed)
	testutil.WaitFor(t, soon, "the change", func() bool { return c.Row(server).Ingress.Generation != generation })
	if a.carries(t, "two", never) {
		t.Error("a message arrived after the change that denies it")
	}
	if state, known := state(); !known || state&bpf.MargayCtStateCT_ONE_WAY == 0 {
		t.Errorf("state %d (known: %v), want it revoked", state, known)
	}
	c.Policy("server", sctpOpen)
	if got, err := a.server.Receive(4 * soon); err != nil || got != "two" { // the kernel sends it again
		t.Errorf("after it is allowed again: %q, %v", got, err)
	}
	if !a.carries(t, "three", soon) {
		t.Error("a message was lost after it was allowed again")
	}
}
