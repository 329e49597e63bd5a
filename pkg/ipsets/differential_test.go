package ipsets_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ipsets"
)

// TestTheFakeDoesWhatTheKernelDoes makes the same random changes in both, and compares results and contents.
// Limits are left out: the kernel may go beyond one by an entry whose place in its table was another's before.
func TestTheFakeDoesWhatTheKernelDoes(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	real := openKernel(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		fake := ipsets.NewFake()
		spec := ipsets.Spec{
			Name: fmt.Sprint("mgy-", run), Type: rapid.SampledFrom([]ipsets.Type{ipsets.Net, ipsets.NetInterface, ipsets.NetPort}).Draw(rt, "type"),
			Family: rapid.SampledFrom([]ipsets.Family{ipsets.IPv4, ipsets.IPv6}).Draw(rt, "family"), MaxEntries: 1000,
		}
		for _, k := range []ipsets.Kernel{fake, real} {
			if err := k.Create(spec); err != nil {
				rt.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 6).Draw(rt, "writes") {
			changes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) ipsets.Change { return randomChange(rt, spec) }), 0, 20).Draw(rt, "changes")
			n, err := fake.Write(spec, changes)
			m, other := real.Write(spec, changes)
			if n != m || kindOf(err) != kindOf(other) {
				rt.Fatalf("the fake makes %d, %v; the kernel %d, %v", n, err, m, other)
			}
			if diff := cmp.Diff(list(t, fake, spec), list(t, real, spec), comparable); diff != "" {
				rt.Fatal(diff)
			}
		}
		a, _ := fake.Header(spec.Name) // it is there
		b, err := real.Header(spec.Name)
		if err != nil || a.Entries != b.Entries || a.Type != b.Type || a.MaxEntries != b.MaxEntries || a.Revision != b.Revision {
			rt.Fatalf("the fake's header %+v, the kernel's %+v, %v", a, b, err)
		}
		if err := real.Destroy(spec.Name); err != nil {
			rt.Fatal(err)
		}
	})
}

func randomChange(rt *rapid.T, spec ipsets.Spec) ipsets.Change {
	bits, place := rapid.SampledFrom([]int{0, 0, 1, 2, 8, 24, 31, 32}).Draw(rt, "length"), [16]byte{0: rapid.SampledFrom([]byte{10, 0x80, 0xfe}).Draw(rt, "place")}
	place[3] = rapid.ByteRange(0, 4).Draw(rt, "host")
	addr := netip.AddrFrom4([4]byte(place[:4]))
	if spec.Family == ipsets.IPv6 {
		addr, bits = netip.AddrFrom16(place), bits*4
	}
	c := put(ipsets.Key{Prefix: netip.PrefixFrom(addr, bits).Masked()}, rapid.Uint32Range(1, 4).Draw(rt, "mark"))
	c.Remove = rapid.Bool().Draw(rt, "remove")
	switch spec.Type {
	case ipsets.NetInterface:
		c.Interface = rapid.SampledFrom([]string{"cali1", "cali2"}).Draw(rt, "interface")
	case ipsets.NetPort:
		c.Protocol, c.Port = rapid.SampledFrom([]uint8{6, 17}).Draw(rt, "protocol"), rapid.Uint16Range(0, 2).Draw(rt, "port")
	}
	if rapid.IntRange(0, 30).Draw(rt, "wrong") == 0 {
		c.Mark.Mask = 0
	}
	return c
}

// kindOf is which of the errors that callers can act on an error is.
func kindOf(err error) error {
	for _, kind := range []error{ipsets.ErrFull, ipsets.ErrCrowded, ipsets.ErrNoSet, ipsets.ErrEntry} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}
