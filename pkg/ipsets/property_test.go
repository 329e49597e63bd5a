package ipsets_test

import (
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/ipsets"
)

// meeting are, for each family, prefixes that meet each other, the halves and the places of anchors.
var meeting = map[ipsets.Family][]string{
	ipsets.IPv4: {"0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "192.0.0.0/2", "64.0.0.0/2", "224.0.0.0/3", "240.0.0.0/4", "240.0.0.0/8", "240.0.0.0/32",
		"240.1.0.0/16", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "10.1.2.4/32"},
	ipsets.IPv6: {"::/0", "::/1", "8000::/1", "c000::/2", "f000::/4", "fc00::/7", "fe00::/7", "fe00::/8", "fe00::/9", "fe00::/64", "fe00::/128", "fe80::/10",
		"2001:db8::/32", "2001:db8::/64", "2001:db8::1/128"},
}

var probes = map[ipsets.Family][]string{
	ipsets.IPv4: {"0.0.0.1", "10.0.0.1", "10.1.0.1", "10.1.2.3", "10.1.2.4", "65.0.0.1", "129.0.0.1", "193.0.0.1", "225.0.0.1", "240.0.0.0", "240.0.0.1",
		"240.1.0.1", "240.200.0.1", "255.255.255.255"},
	ipsets.IPv6: {"::1", "4000::1", "9000::1", "d000::1", "f000::1", "fc00::1", "fe00::", "fe00::1", "fe00:0:0:1::", "fe40::1", "fe80::1", "ff02::1",
		"2001:db8::", "2001:db8::1", "2001:db8:1::", "ffff::"},
}

// longest is what a naive reader of a list of prefixes finds for an address.
func longest(entries map[ipsets.Key]uint32, a netip.Addr) (mark uint32, found bool) {
	best := -1
	for k, v := range entries {
		if k.Prefix.Contains(a) && k.Prefix.Bits() > best {
			best, mark, found = k.Prefix.Bits(), v, true
		}
	}
	return mark, found
}

func TestAfterEachWriteAnAddressHasItsOldOrItsNewValue(t *testing.T) {
	for family, prefixes := range meeting {
		spec := ipsets.Spec{Name: "mgy-class", Type: ipsets.Net, Family: family, MaxEntries: 1000}
		t.Run(family.String(), func(t *testing.T) { checkSteps(t, spec, prefixes) })
	}
}

func checkSteps(t *testing.T, spec ipsets.Spec, prefixes []string) {
	rapid.Check(t, func(rt *rapid.T) {
		k := ipsets.NewFake()
		s := ensure(t, k, spec)
		wanted := map[ipsets.Key]uint32{}
		lengths := map[int]bool{}
		for range rapid.IntRange(1, 25).Draw(rt, "changes") {
			c := put(key(rapid.SampledFrom(prefixes).Draw(rt, "prefix")), rapid.Uint32Range(1, 5).Draw(rt, "mark"))
			c.Remove = rapid.Bool().Draw(rt, "remove")
			before, after := maps.Clone(wanted), maps.Clone(wanted)
			if delete(after, c.Key); !c.Remove {
				after[c.Key] = c.Mark.Value >> 16
			}
			lengths[max(c.Prefix.Bits(), 1)] = true
			k.Refuse = func(string, ipsets.Change) error { // before each write, and so after each but the last
				checkLookups(rt, k, spec, before, after)
				return nil
			}
			if _, err := s.Apply([]ipsets.Change{c}); err != nil {
				rt.Fatal(err)
			}
			wanted = after
			checkLookups(rt, k, spec, wanted, wanted)
			for _, text := range probes[spec.Family] {
				a := netip.MustParseAddr(text)
				packet := ipsets.Key{Prefix: netip.PrefixFrom(a, a.BitLen())}
				in, found := k.Lookup(spec.Name, packet)
				if e, ok := s.Lookup(packet); ok != found || ok && e.Mark != in {
					rt.Fatalf("%v: the set finds %+v (%t), the kernel %+v (%t)", a, e, ok, in, found)
				}
			}
			checkLengths(rt, k, spec, lengths)
		}
		got := map[ipsets.Key]uint32{}
		for e := range s.All() {
			got[e.Key] = e.Mark.Value >> 16
		}
		if diff := cmp.Diff(wanted, got, comparable); diff != "" {
			rt.Fatal(diff)
		}
		if r := resync(t, s); r.Len() != 0 {
			rt.Fatalf("%+v", r)
		}
		checkRepair(rt, k, s, wanted, prefixes)
	})
}

// checkRepair damages a set. While it is repaired, each address has the value that the damage gave it, or the right one.
func checkRepair(rt *rapid.T, k *ipsets.Fake, s *ipsets.Set, wanted map[ipsets.Key]uint32, prefixes []string) {
	k.Refuse = nil
	for range rapid.IntRange(1, 6).Draw(rt, "damages") {
		c := put(key(rapid.SampledFrom(prefixes).Draw(rt, "damaged")), rapid.Uint32Range(6, 9).Draw(rt, "foreign mark"))
		c.Remove = rapid.Bool().Draw(rt, "missing")
		if _, err := k.Write(s.Spec(), []ipsets.Change{c}); err != nil && !errors.Is(err, ipsets.ErrEntry) {
			rt.Fatal(err)
		}
	}
	damaged := map[string]ipsets.Mark{}
	for _, text := range probes[s.Spec().Family] {
		if m, found := k.Lookup(s.Spec().Name, hostKey(text)); found {
			damaged[text] = m
		}
	}
	check := func(repaired bool) {
		for _, text := range probes[s.Spec().Family] {
			mark, found := k.Lookup(s.Spec().Name, hostKey(text))
			now, is := longest(wanted, netip.MustParseAddr(text))
			old, was := damaged[text]
			if (mark.Value>>16 != now || found != is) && (repaired || mark != old || found != was) {
				rt.Fatalf("%s has %d (%t), want %d (%t), or from the damage %d (%t); repaired: %t", text, mark.Value>>16, found, now, is, old.Value>>16, was, repaired)
			}
		}
	}
	k.Refuse = func(string, ipsets.Change) error { check(false); return nil }
	if _, err := s.Resync(); err != nil {
		rt.Fatal(err)
	}
	check(true)
}

func hostKey(text string) ipsets.Key {
	a := netip.MustParseAddr(text)
	return ipsets.Key{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

func checkLookups(rt *rapid.T, k *ipsets.Fake, spec ipsets.Spec, before, after map[ipsets.Key]uint32) {
	for _, text := range probes[spec.Family] {
		a := netip.MustParseAddr(text)
		mark, found := k.Lookup(spec.Name, ipsets.Key{Prefix: netip.PrefixFrom(a, a.BitLen())})
		old, hadOld := longest(before, a)
		now, hasNow := longest(after, a)
		if (mark.Value>>16 != old || found != hadOld) && (mark.Value>>16 != now || found != hasNow) {
			rt.Fatalf("%v has %d (%t), want %d (%t) or %d (%t)", a, mark.Value>>16, found, old, hadOld, now, hasNow)
		}
	}
}

func checkLengths(rt *rapid.T, k *ipsets.Fake, spec ipsets.Spec, lengths map[int]bool) {
	have := map[int]bool{}
	if err := k.List(spec, func(e ipsets.Entry) { have[max(e.Prefix.Bits(), 1)] = true }); err != nil {
		rt.Fatal(err)
	}
	for bits := range lengths {
		if !have[bits] {
			rt.Fatalf("the last entry of length %d was removed", bits)
		}
	}
}
