package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// Two CPUs that send the first packet of one flow at once get two backends from kube-proxy. The kernel keeps the one whose entry it
// confirms first, and the record the one that was judged last. The flow is judged by the one of the kernel: packets go there.
func TestAFlowIsJudgedByTheBackendOfTheKernel(t *testing.T) {
	testcluster.NeedsBPF(t, "there the kernel's entry is the record")
	for _, v6 := range []bool{false, true} {
		for i, protocol := range []string{"udp", "tcp"} {
			for _, later := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, IPv6 %t, a packet between record and change %t", protocol, v6, later), func(t *testing.T) {
					s := newScene(t)
					vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.60"), true: netip.MustParseAddr("fd96::60")}[v6]
					k := talk{protocol: protocol, a: netip.AddrPortFrom(s.m.Addr(v6), 20000), c: netip.AddrPortFrom(s.c.Addr(v6), 80),
						front: netip.AddrPortFrom(vip, 8000+uint16(i))}
					s.clashes(t, k, later)
				})
			}
		}
	}
}

// clashes has a flow that goes to shop/c and has evil/e on record, then denies it shop/c.
func (s *scene) clashes(t *testing.T, k talk, later bool) {
	v6 := k.a.Addr().Is6()
	muteStack(t, s.m)
	muteStack(t, s.c)
	atM, atC := s.watch(s.m.Host), s.watch(s.c.Host)
	s.service("clash", k.front, k.protocol, k.c)
	testutil.WaitFor(t, soon, "a first packet to arrive", func() bool {
		token := s.tokens.next()
		send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.SYN))(token)...)
		return s.arrives(token, never, []*witness{atC}) != nil
	})
	s.record(t, k, s.e.Addr(v6))
	s.play(t, []attack{{what: "answer", from: s.c, frames: bearing(s.c, k.packet(k.c, k.a, testutil.SYN|testutil.ACK)), want: true}}, atM)
	if later {
		s.play(t, []attack{{what: "third packet", from: s.m, frames: bearing(s.m, k.packet(k.a, k.front, testutil.ACK)), want: true}}, atC)
	}
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}`)
	s.AwaitPolicies(s.m, 0, 1)
	for range 2 {
		token := s.tokens.next()
		send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.PSH|testutil.ACK))(token)...)
		s.expect(t, "a packet to a backend that policy denies", token, false, atC)
	}
}

// record writes another backend into the record of a flow, as the judge of the other packet does.
func (s *scene) record(t *testing.T, k talk, backend netip.Addr) {
	t.Helper()
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: s.Agent(0).BPFFS})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	of, found := m.Map(bpf.MargayMapCt4), 0
	if backend.Is6() {
		of = m.Map(bpf.MargayMapCt6)
	}
	var key, raw []byte
	for it := of.Iterate(); it.Next(&key, &raw); {
		n := len(k.a.Addr().AsSlice())
		ends := [][]byte{key[:n], key[n : 2*n]}
		if !slices.ContainsFunc(ends, func(b []byte) bool { return string(b) == string(k.front.Addr().AsSlice()) }) {
			continue
		}
		ports := []uint16{binary.NativeEndian.Uint16(key[2*n:]), binary.NativeEndian.Uint16(key[2*n+2:])}
		if !slices.Contains(ports, k.a.Port()) || !slices.Contains(ports, k.front.Port()) {
			continue
		}
		var e bpf.CtEntry
		if err := of.Lookup(key, &e); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if e.Flags&uint8(bpf.MargayCtFlagsCT_TRANSLATED) == 0 {
			t.Fatalf("the flow to %s is on record with flags %#x, want a translated one", k.front, e.Flags)
		}
		e.Flags &^= uint8(bpf.MargayCtFlagsCT_CONFIRMED)
		e.Backend = [16]byte{}
		copy(e.Backend[:], backend.AsSlice())
		if err := of.Update(key, e, ebpf.UpdateExist); err != nil {
			t.Fatal(err)
		}
		found++
	}
	if found != 1 {
		t.Fatalf("%d flows to %s on record, want one", found, k.front)
	}
}
