package ipsets_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ipsets"
)

const mask = 0x1fff0000

var comparable = cmpopts.EquateComparable(netip.Prefix{})

func key(prefix string) ipsets.Key { return ipsets.Key{Prefix: netip.MustParsePrefix(prefix)} }

func put(k ipsets.Key, mark uint32) ipsets.Change {
	return ipsets.Change{Entry: ipsets.Entry{Key: k, Mark: ipsets.Mark{Value: mark << 16, Mask: mask}}}
}

func remove(k ipsets.Key) ipsets.Change {
	return ipsets.Change{Entry: ipsets.Entry{Key: k}, Remove: true}
}

// openKernel connects to the IP sets of the network namespace that the test is in.
func openKernel(t testing.TB) *ipsets.Conn {
	t.Helper()
	k, err := ipsets.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// eachKernel runs a test on the fake, and in a network namespace of its own on the real kernel.
func eachKernel(t *testing.T, test func(t *testing.T, k ipsets.Kernel)) {
	t.Run("fake", func(t *testing.T) { test(t, ipsets.NewFake()) })
	t.Run("kernel", func(t *testing.T) {
		testutil.Privileged(t)
		testutil.NetNS(t).Enter(t)
		test(t, openKernel(t))
	})
}

func create(t testing.TB, k ipsets.Kernel, s ipsets.Spec) ipsets.Spec {
	t.Helper()
	if err := k.Create(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, k ipsets.Kernel, s ipsets.Spec, changes ...ipsets.Change) {
	t.Helper()
	if n, err := k.Write(s, changes); err != nil || n != len(changes) {
		t.Fatalf("made %d of %d changes: %v", n, len(changes), err)
	}
}

// list is what is in a set: key and value of the mark's field.
func list(t testing.TB, k ipsets.Kernel, s ipsets.Spec) map[ipsets.Key]uint32 {
	t.Helper()
	got := map[ipsets.Key]uint32{}
	err := k.List(s, func(e ipsets.Entry) {
		if e.Mark.Mask != mask && !e.NoMatch {
			t.Errorf("%v has the mask %#x", e.Key, e.Mark.Mask)
		}
		got[e.Key] = e.Mark.Value >> 16
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func want(t testing.TB, k ipsets.Kernel, s ipsets.Spec, entries map[ipsets.Key]uint32) {
	t.Helper()
	if diff := cmp.Diff(entries, list(t, k, s), comparable); diff != "" {
		t.Error(diff)
	}
}

// specs are a set of each type and family with keys for it.
func specs() map[string]struct {
	spec ipsets.Spec
	keys []ipsets.Key
} {
	type row = struct {
		spec ipsets.Spec
		keys []ipsets.Key
	}
	prefixes := map[ipsets.Family][]string{
		ipsets.IPv4: {"10.0.0.0/8", "10.1.2.3/32", "10.128.0.0/9"}, ipsets.IPv6: {"2001:db8::/32", "2001:db8::1/128", "fd00::/8"},
	}
	all := map[string]row{}
	for family, texts := range prefixes {
		var plain, interfaces, ports []ipsets.Key
		for _, text := range texts {
			k := key(text)
			plain = append(plain, k)
			k.Interface = "cali0123456789a" // 15 bytes
			interfaces = append(interfaces, k)
			k.Interface, k.Protocol, k.Port = "", 6, 5432
			ports = append(ports, k)
		}
		for kind, keys := range map[ipsets.Type][]ipsets.Key{ipsets.Net: plain, ipsets.NetInterface: interfaces, ipsets.NetPort: ports} {
			name := strings.ReplaceAll(string(kind)+"-"+family.String(), ":", "-")
			all[name] = row{ipsets.Spec{Name: "mgy-" + name, Type: kind, Family: family, MaxEntries: 100}, keys}
		}
	}
	return all
}

func TestEntriesAreAddedOverwrittenListedAndDeleted(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		for name, r := range specs() {
			t.Log(name)
			s, keys := create(t, k, r.spec), r.keys
			write(t, k, s, put(keys[0], 1), put(keys[1], 2), put(keys[2], 3), put(keys[0], 4), remove(keys[2]))
			want(t, k, s, map[ipsets.Key]uint32{keys[0]: 4, keys[1]: 2})
			write(t, k, s, remove(keys[2]), remove(keys[0]), put(keys[1], 5)) // the first is not there
			want(t, k, s, map[ipsets.Key]uint32{keys[1]: 5})
			h, err := k.Header(s.Name)
			if err != nil || h.Type != s.Type || h.Family != s.Family || h.MaxEntries != 100 || !h.HasMarks || h.Entries != 1 || h.References != 0 {
				t.Errorf("%+v, %v", h, err)
			}
		}
		names, err := k.Names("mgy-")
		if wanted := slices.Sorted(maps.Keys(namesOf())); err != nil || !slices.Equal(names, wanted) {
			t.Errorf("sets %v, %v; want %v", names, err, wanted)
		}
		for _, name := range names {
			if err := k.Destroy(name); err != nil {
				t.Error(err)
			}
		}
		if names, err := k.Names(""); err != nil || len(names) != 0 {
			t.Errorf("sets are left: %v, %v", names, err)
		}
	})
}

func namesOf() map[string]bool {
	names := map[string]bool{}
	for _, r := range specs() {
		names[r.spec.Name] = true
	}
	return names
}

func TestAWholeAddressSpaceIsTwoHalvesAndListedAsOne(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		for _, x := range []struct {
			family          ipsets.Family
			all, low, other string
		}{{ipsets.IPv4, "0.0.0.0/0", "0.0.0.0/1", "10.0.0.0/8"}, {ipsets.IPv6, "::/0", "::/1", "fd00::/8"}} {
			s := create(t, k, ipsets.Spec{Name: "whole" + x.family.String(), Type: ipsets.Net, Family: x.family})
			write(t, k, s, put(key(x.all), 1), put(key(x.other), 2))
			want(t, k, s, map[ipsets.Key]uint32{key(x.all): 1, key(x.other): 2})
			write(t, k, s, put(key(x.low), 3))
			if got := list(t, k, s); len(got) != 3 || got[key(x.low)] != 3 {
				t.Errorf("after a half of its own: %v", got)
			}
			write(t, k, s, remove(key(x.all)))
			want(t, k, s, map[ipsets.Key]uint32{key(x.other): 2})
		}
		s := create(t, k, ipsets.Spec{Name: "whole-interface", Type: ipsets.NetInterface, Family: ipsets.IPv4})
		all := key("0.0.0.0/0")
		all.Interface = "eth7"
		write(t, k, s, put(all, 1))
		want(t, k, s, map[ipsets.Key]uint32{all: 1})
	})
}

func TestErrorsNameSetAndEntryAndCanBeDistinguished(t *testing.T) {
	eachKernel(t, func(t *testing.T, k ipsets.Kernel) {
		s := create(t, k, ipsets.Spec{Name: "mgy-small", Type: ipsets.Net, Family: ipsets.IPv4, MaxEntries: 3})
		gone := s
		gone.Name = "mgy-gone"
		outside := put(key("10.0.0.0/8"), 1)
		outside.Mark.Mask = 0xff
		named := key("10.0.0.0/8")
		named.Interface = "eth0"

		n, err := k.Write(s, []ipsets.Change{
			put(key("10.0.0.1/32"), 1), put(key("10.0.0.2/32"), 1), put(key("10.0.0.3/32"), 1), put(key("10.0.0.4/32"), 1), put(key("10.0.0.5/32"), 1),
		})
		if n != 3 || !errors.Is(err, ipsets.ErrFull) || !strings.Contains(err.Error(), "add 10.0.0.4/32, IP set mgy-small: ") {
			t.Errorf("beyond the limit: made %d, %v", n, err)
		}
		write(t, k, s, put(key("10.0.0.2/32"), 7)) // overwriting needs no room
		want(t, k, s, map[ipsets.Key]uint32{key("10.0.0.1/32"): 1, key("10.0.0.2/32"): 7, key("10.0.0.3/32"): 1})

		for what, c := range map[string]ipsets.Change{
			"a prefix of the other family": put(key("fd00::/8"), 1), "bits beyond the length": put(ipsets.Key{Prefix: netip.PrefixFrom(netip.MustParseAddr("10.1.2.3"), 8)}, 1),
			"a mark outside its mask": outside, "an interface in a set without": put(named, 1), "no prefix": put(ipsets.Key{}, 1),
		} {
			if n, err := k.Write(s, []ipsets.Change{remove(key("10.0.0.1/32")), c, remove(key("10.0.0.2/32"))}); n != 1 || !errors.Is(err, ipsets.ErrEntry) {
				t.Errorf("%s: made %d, %v", what, n, err)
			}
		}
		_, writing := k.Write(gone, []ipsets.Change{put(key("10.0.0.0/8"), 1)})
		_, header := k.Header(gone.Name)
		for what, x := range map[string]struct{ got, want error }{
			"create what exists": {k.Create(s), ipsets.ErrExists}, "write to no set": {writing, ipsets.ErrNoSet}, "header of no set": {header, ipsets.ErrNoSet},
			"list no set": {k.List(gone, func(ipsets.Entry) {}), ipsets.ErrNoSet}, "destroy no set": {k.Destroy(gone.Name), ipsets.ErrNoSet},
		} {
			if !errors.Is(x.got, x.want) || !strings.Contains(x.got.Error(), "mgy-") {
				t.Errorf("%s: %v, want %v", what, x.got, x.want)
			}
		}
	})
}
