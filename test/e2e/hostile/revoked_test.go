package hostile

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
