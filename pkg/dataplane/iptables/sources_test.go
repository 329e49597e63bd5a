package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// listing is an endpoint of this node that lists further sources.
func listingAt(name, iface, addr string, prefixes ...string) model.EndpointUpdate {
	u := endpointAt(name, iface, addr, map[string]string{"app": name})
	for _, p := range prefixes {
		u.Endpoint.Sources = append(u.Endpoint.Sources, netip.MustParsePrefix(p))
	}
	return u
}

// sourcesOf returns the further sources that the kernel lets an interface send from, by the rules of its chains and the sets that they
// name. Both sets of the interface must have the same prefixes.
func (n *fakeNode) sourcesOf(t *testing.T, iface string) []string {
	t.Helper()
	list := []string{}
	for _, family := range families {
		for line := range strings.Lines(n.tables.Save(iptables.Family(family), "mangle")) {
			_, line, _ = strings.Cut(line, "-A ")
			words := strings.Fields(line)
			if len(words) < 2 || !strings.HasSuffix(words[0], "-src-eg") && !strings.HasSuffix(words[0], "-src-in") || !slices.Contains(words, iface) {
				continue
			}
			set := words[slices.Index(words, "--map-set")+1]
			err := n.sets.List(ipsets.Spec{Name: set, Type: ipsets.Net, Family: map[uint8]ipsets.Family{4: ipsets.IPv4, 6: ipsets.IPv6}[family]}, func(e ipsets.Entry) {
				if e.NoMatch || e.Prefix.Bits() > 4 && netip.MustParsePrefix("240.0.0.0/4").Contains(e.Prefix.Addr()) { // an anchor
					return
				}
				if e.Mark.Mask == 0 {
					t.Errorf("%s has no slot for %v", set, e.Key)
				}
				list = append(list, e.Prefix.String())
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(list)
	if len(list)%2 != 0 {
		t.Fatalf("the sets of %s differ: %v", iface, list)
	}
	for i := 0; i < len(list); i += 2 {
		if list[i] != list[i+1] {
			t.Fatalf("the sets of %s differ: %v", iface, list)
		}
	}
	return slices.Compact(list)
}

func (n *fakeNode) wantSources(t *testing.T, when, iface string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := n.sourcesOf(t, iface); !slices.Equal(got, want) {
		t.Errorf("%s: %s may send from %v, want %v", when, iface, got, want)
	}
}

// wantUntouched demands that no chain and no set is about further sources.
func (n *fakeNode) wantUntouched(t *testing.T, when string) {
	t.Helper()
	for _, family := range families {
		for _, table := range tableNames {
			saved := n.tables.Save(iptables.Family(family), table)
			for _, word := range []string{"-further", "-stray", "-listed", "-lone", "-src-eg", "-dst-in", "owned", "rpfilter"} {
				if strings.Contains(saved, word) {
					t.Errorf("%s: table %s of IPv%d has %q", when, table, family, word)
				}
			}
		}
	}
	names, err := n.sets.Names("mgy")
	if err != nil || len(names) != 10 {
		t.Errorf("%s: the sets are %v, %v", when, names, err)
	}
}

func (n *fakeNode) isOwned(addr string) bool {
	a := netip.MustParseAddr(addr)
	_, is := n.state.sets.of[familyOf(a)].owned.Lookup(keyOf(a))
	return is
}

func TestFurtherSourcesFollowTheirEndpoint(t *testing.T) {
	n := newFakeNode(t)
	others := stage{role: "x", allow: []string{"x"}, ports: []uint16{80}}.updates()
	n.mustApply(t, append(others, listingAt("gw", "cali1", "10.0.9.1"))...)
	n.wantUntouched(t, "nothing is listed")
	if n.isOwned("10.0.0.2") {
		t.Error("an address is owned although nothing is listed")
	}
	generation := n.state.static.generation.number
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0"))
	n.wantSources(t, "listed", "cali1", "203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0")
	if !n.isOwned("10.0.0.2") || !n.isOwned("10.0.9.1") || n.isOwned("203.0.113.1") {
		t.Error("addresses of endpoints are not owned, or an address without an owner is")
	}
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24", "198.51.100.0/24"))
	n.wantSources(t, "others", "cali1", "203.0.113.0/24", "198.51.100.0/24")
	if n.state.static.generation.number == generation {
		t.Error("live flows are not judged again when a further source is revoked")
	}

	// Another endpoint with the same prefix and longer ones makes no difference to the first, and neither does its end.
	n.mustApply(t, listingAt("thief", "cali2", "10.0.9.2", "203.0.113.0/24", "203.0.113.7/32"))
	n.wantSources(t, "with another", "cali1", "203.0.113.0/24", "198.51.100.0/24")
	n.wantSources(t, "another", "cali2", "203.0.113.0/24", "203.0.113.7/32")
	n.mustApply(t, model.Absent(listingAt("thief", "cali2", "10.0.9.2")))
	n.wantSources(t, "without another", "cali1", "203.0.113.0/24", "198.51.100.0/24")
	n.wantSources(t, "gone", "cali2")

	// An interface of that name that is another endpoint's now.
	n.mustApply(t, model.Absent(listingAt("gw", "cali1", "10.0.9.1")), listingAt("next", "cali1", "10.0.9.3"))
	n.wantSources(t, "the next endpoint of the interface", "cali1")
	n.mustApply(t)
	n.wantUntouched(t, "nothing is listed any more")

	// A successor writes the same.
	n.mustApply(t, listingAt("next", "cali1", "10.0.9.3", "203.0.113.0/24"))
	n.open(t)
	n.mustApply(t, append(others, listingAt("next", "cali1", "10.0.9.3", "203.0.113.0/24"))...)
	n.wantSources(t, "after a restart", "cali1", "203.0.113.0/24")
	n.open(t)
	n.mustApply(t, append(others, listingAt("next", "cali1", "10.0.9.3"))...)
	n.mustApply(t)
	n.wantUntouched(t, "after a restart without the setting")
}

// A prefix goes before anything else is written: an address may lose its owner in the same plan.
func TestFurtherSourcesCloseFirstAndOpenLast(t *testing.T) {
	n := newFakeNode(t)
	at := func(step, want string) {
		for i := range order {
			if order[i].what == step {
				do := order[i].do
				t.Cleanup(func() { order[i].do = do })
				order[i].do = func(s *state) error {
					if len(n.state.endpoints.sources.of) > 0 {
						n.wantSources(t, "before the step "+step, "cali1", strings.Fields(want)...)
					}
					return do(s)
				}
				return
			}
		}
		t.Fatalf("there is no step %q", step)
	}
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1"))...)
	at("open endpoints", "")
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "0.0.0.0/0"))
	n.wantSources(t, "listed", "cali1", "0.0.0.0/0")
	at("open endpoints", "")
	at("write chains of new policies", "")
	at("move addresses", "")
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1"))
	n.wantSources(t, "listed no more", "cali1")
}

// fewSets is a kernel that makes no sets for a second endpoint.
type fewSets struct{ *ipsets.Fake }

func (f fewSets) Create(s ipsets.Spec) error {
	if strings.Contains(s.Name, "-src2-") {
		return ipsets.ErrTooManySets
	}
	return f.Fake.Create(s)
}

// A kernel that has no room for the sets of one endpoint harms no other one.
func TestFurtherSourcesThatCannotBeWrittenAreReported(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))...)
	n.state.sets.kernel = fewSets{n.sets}
	n.mustApply(t, listingAt("other", "cali2", "10.0.9.2", "198.51.100.0/24"), listingAt("third", "cali3", "10.0.9.3"))
	n.wantSources(t, "the first", "cali1", "203.0.113.0/24")
	n.wantSources(t, "the second", "cali2")
	for _, s := range n.Endpoints() {
		if (s.Sources != "") != (s.ID == listingAt("other", "", "10.0.9.2").ID) {
			t.Errorf("%v: %q", s.ID, s.Sources)
		}
	}
}

// While an owned address is not in the kernel, no further source counts, and the endpoints stay open.
func TestFurtherSourcesAreClosedWhileAnOwnedAddressIsMissing(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))...)
	n.wantSources(t, "at first", "cali1", "203.0.113.0/24")
	full := true
	n.sets.Refuse = func(set string, c ipsets.Change) error {
		if full && strings.HasSuffix(set, "4-owned") && !c.Remove {
			return ipsets.ErrFull
		}
		return nil
	}
	if err := n.apply(endpointAt("late", "", "203.0.113.5", nil)); err == nil {
		t.Fatal("the address is written: the test tests nothing")
	}
	n.wantSources(t, "while the owned address is missing", "cali1")
	for _, s := range n.Endpoints() {
		if (s.Sources != "") != (s.ID == listingAt("gw", "", "10.0.9.1").ID) {
			t.Errorf("%v: %q", s.ID, s.Sources)
		}
	}
	full = false
	n.mustApply(t)
	n.wantSources(t, "with room again", "cali1", "203.0.113.0/24")
	if !n.isOwned("203.0.113.5") {
		t.Error("the address is not owned")
	}
}

// Connections that packets judged alone have begun go when no chain knows them any more.
func TestConnectionsOfStrayPacketsGoWithTheChains(t *testing.T) {
	n := newFakeNode(t)
	marks, err := chains.NewMarks(chains.DefaultMask)
	if err != nil {
		t.Fatal(err)
	}
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))...)
	n.flows.marks = []uint32{marks.Lone().Value, 0x80020000}
	n.mustApply(t)
	if len(n.flows.marks) != 2 {
		t.Errorf("marks %#x: removed while the chains know them", n.flows.marks)
	}
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1"))
	n.mustApply(t)
	if fmt.Sprintf("%#x", n.flows.marks) != "[0x80020000]" {
		t.Errorf("marks %#x", n.flows.marks)
	}
}

// Sets of further sources and of owned addresses that others have changed are found by verification and by a resync, which repairs them.
func TestDamagedFurtherSourcesAreFoundAndRepaired(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24", "10.0.0.0/8"))...)
	sound := n.contents(t)
	v := n.Verifier()
	faults := func() []string {
		t.Helper()
		if err := v.Round(); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Entries(); err != nil {
			t.Fatal(err)
		}
		parts, err := v.NodeFaults()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, p := range parts {
			list = append(list, p.Faults...)
			if p.Skipped != "" {
				t.Errorf("%s was not compared: %s", p.Name, p.Skipped)
			}
		}
		return list
	}
	if err := v.Begin(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if list := faults(); len(list) > 0 {
		t.Errorf("at first: %v", list)
	}
	of := n.state.endpoints.sources.of[listingAt("gw", "", "10.0.9.1").ID].sets[4]
	key := func(p string) ipsets.Entry { return ipsets.Entry{Key: ipsets.Key{Prefix: netip.MustParsePrefix(p)}} }
	for what, damage := range map[string]struct {
		set    *ipsets.Set
		change ipsets.Change
	}{
		"a foreign prefix":        {of.egress, ipsets.Change{Entry: key("198.51.100.0/24")}},
		"a missing prefix":        {of.ingress, ipsets.Change{Entry: key("203.0.113.0/24"), Remove: true}},
		"another slot":            {of.egress, ipsets.Change{Entry: key("203.0.113.0/24")}},
		"a missing owned address": {n.state.sets.of[4].owned, ipsets.Change{Entry: key("10.0.0.2/32"), Remove: true}},
	} {
		if _, err := n.sets.Write(damage.set.Spec(), []ipsets.Change{damage.change}); err != nil {
			t.Fatal(err)
		}
		if list := faults(); len(list) != 1 {
			t.Errorf("%s: found %v", what, list)
		}
		n.Resync()
		n.mustApply(t)
		if now := n.contents(t); normal(now) != normal(sound) {
			t.Errorf("%s is not repaired", what)
		}
	}
	if err := n.sets.Destroy(of.egress.Spec().Name); err == nil {
		if list := faults(); len(list) != 1 {
			t.Errorf("a missing set: found %v", list)
		}
		n.Resync()
		n.mustApply(t)
		n.wantSources(t, "repaired", "cali1", "203.0.113.0/24", "10.0.0.0/8")
	}
}

// A kernel without the match rpfilter has further sources, too; their packets are judged by themselves.
func TestFurtherSourcesWithoutReversePaths(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1"))...)
	refused := &iptables.RefusedError{Command: "fake-restore", Text: "COMMIT", Message: "no match of that name"}
	n.tables.Fail(refused, refused) // a table tries once more by itself
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))
	n.wantSources(t, "listed", "cali1", "203.0.113.0/24")
	if saved := n.tables.Save(iptables.V4, "raw"); strings.Contains(saved, "rpfilter") || !strings.Contains(saved, "-stray") {
		t.Errorf("the chains are\n%s", saved)
	}
	n.mustApply(t, listingAt("two", "cali2", "10.0.9.2", "203.0.113.0/24"))
	n.wantSources(t, "another", "cali2", "203.0.113.0/24")

	other := newFakeNode(t)
	other.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))...)
	other.tables.Fail(refused, refused)
	if err := other.apply(listingAt("two", "cali2", "10.0.9.2", "203.0.113.0/24")); err == nil {
		t.Error("a refusal is taken for one of rpfilter, which the kernel has accepted before")
	}
	if saved := other.tables.Save(iptables.V4, "raw"); !strings.Contains(saved, "rpfilter") {
		t.Error("the match rpfilter is gone")
	}
}
