package ipsets

import (
	"net/netip"
	"strings"
	"testing"
)

// TestOwnWritesSinceAReadingAreNoAlterations: what others have altered is found beside them, until there are too many.
func TestOwnWritesSinceAReadingAreNoAlterations(t *testing.T) {
	kernel := NewFake()
	s := NewSet(kernel, Spec{Name: "s", Type: Net, Family: IPv4})
	change := func(prefix string, mark uint32) Change {
		return Change{Entry: Entry{Key: Key{Prefix: netip.MustParsePrefix(prefix)}, Mark: Mark{Value: mark, Mask: 0xff}}}
	}
	apply := func(list ...Change) {
		t.Helper()
		if _, err := s.Apply(list); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ensure(); err != nil {
		t.Fatal(err)
	}
	apply(change("10.0.0.1/32", 1), change("10.0.0.2/32", 1), change("10.0.0.3/32", 1), change("10.0.0.7/32", 1), change("10.0.0.8/32", 0))
	wanted := true
	o := s.Observe(func() bool { return wanted })
	lost := change("10.0.0.7/32", 1)
	lost.Remove = true
	exception := change("10.0.0.8/32", 0) // the same, but that it is not in the set
	exception.NoMatch = true
	if _, err := kernel.Write(s.Spec(), []Change{change("10.0.0.3/32", 9), change("10.0.0.4/32", 9), lost, exception}); err != nil {
		t.Fatal(err)
	}
	listed, err := ListAll(kernel, s.Spec())
	if err != nil {
		t.Fatal(err)
	}
	gone := change("10.0.0.2/32", 1)
	gone.Remove = true
	apply(change("10.0.0.1/32", 2), gone, change("10.0.0.5/32", 1))
	found, ok := o.Altered(listed)
	if text := strings.Join(found, "; "); !ok || len(found) != 4 || !strings.Contains(text, "0x9/0xff for 10.0.0.3/32") ||
		!strings.Contains(text, "has the entry 10.0.0.4/32") || !strings.Contains(text, "lacks the entry 10.0.0.7/32") || !strings.Contains(text, "for 10.0.0.8/32") {
		t.Errorf("found %q, %v", found, ok)
	}
	wanted = false
	apply(change("10.0.0.6/32", 1))
	if found, ok := o.Altered(listed); ok {
		t.Errorf("nothing is noted any more, and found is %q", found)
	}
}

func TestAPackedKeyHasEachPartOfAKey(t *testing.T) {
	for _, k := range []Key{
		{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Interface: "cali1", Flags: 2},
		{Prefix: netip.MustParsePrefix("fd00::1/128"), Protocol: 132, Port: 65535},
	} {
		if got := pack(k).key(map[bool]Family{true: IPv4, false: IPv6}[k.Prefix.Addr().Is4()]); got != k {
			t.Errorf("%+v is packed as %+v", k, got)
		}
	}
}
