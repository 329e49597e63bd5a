package hostile

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// TestARevokedConnectionToAServiceIsReset: at both ends (D-11), with the backend on the client's node and on another one. The client
// sends the first packet after the change, so that is the one the RST to the client is made of.
func TestARevokedConnectionToAServiceIsReset(t *testing.T) {
	s := newScene(t)
	for i, backend := range []*lab.Pod{s.b, s.c} {
		t.Run(backend.Name(), func(t *testing.T) {
			families(t, func(t *testing.T, v6 bool) {
				vip := netip.MustParseAddr("10.96.0.20")
				if v6 {
					vip = netip.MustParseAddr("fd96::20")
				}
				service := netip.AddrPortFrom(vip, uint16(8000+i))
				at := netip.AddrPortFrom(backend.Addr(v6), 8000)
				s.service(fmt.Sprintf("revoked-%d-%t", i, v6), service, "tcp", at)
				accepted := listen(t, backend.Host, at)
				client := dial(t, s.a.Host, 0, service)
				defer client.Close()
				server := <-accepted
				if err := errors.Join(says(t, client, server, "ask", soon), says(t, server, client, "answer", soon)); err != nil {
					t.Fatal(err)
				}
				s.Policy("revokes", fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress]}", backend.Name()[len("shop/"):]))
				defer func() {
					s.Remove("policy-revokes")
					s.AwaitPolicies(backend, 0, 0)
				}()
				s.AwaitPolicies(backend, 1, 0)
				if _, err := client.Write([]byte("more")); err != nil {
					t.Fatal(err)
				}
				for what, conn := range map[string]interface {
					SetReadDeadline(time.Time) error
					Read([]byte) (int, error)
				}{"client": client, "server": server} {
					if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
						t.Fatal(err)
					}
					if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNRESET) {
						t.Errorf("the %s reads %v, want a reset", what, err)
					}
				}
				// It passes at once, not after many of the client's tries.
				if n := s.Agent(0).Drops(backend)["midflow"]; n != 0 {
					t.Errorf("%d packets of the backend are dropped as midflow", n)
				}
			})
		})
	}
}

// TestKeptFlowsAreNotInherited: a pod with the interface number and address of one that has gone denies what that one had open. Only for
// the former one live flows keep their permission.
func TestKeptFlowsAreNotInherited(t *testing.T) {
	s := newScene(t, "--existing-connections", "keep")
	at := s.watch(s.ext.Host)
	former := s.Pod(s.n1, "evil/former")
	udp := func(v6 bool, port uint16) testutil.Packet {
		return testutil.Packet{Src: former.Addr(v6), Dst: s.ext.Addr(v6), L4: testutil.UDP{SrcPort: port, DstPort: 99}}
	}
	for _, v6 := range []bool{false, true} {
		s.expect(t, "of the former pod", s.shoot(t, former.Host, udp(v6, 1000)), true, at)
	}
	s.Policy("evil/heir", `{podSelector: {matchLabels: {app: heir}}, policyTypes: [Egress]}`)
	number := former.IfIndex()
	s.Remove("pod-evil.former")
	heir, err := s.n1.ReplacePod(former, "evil", "heir", former.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	if heir.IfIndex() != number {
		t.Fatalf("the interface has number %d, want %d again", heir.IfIndex(), number)
	}
	s.Declare(heir)
	s.AwaitPolicies(heir, 0, 1)
	for _, v6 := range []bool{false, true} {
		s.expect(t, "of the heir, with the ports of a live flow", s.shoot(t, heir.Host, udp(v6, 1000)), false, at)
	}
}
