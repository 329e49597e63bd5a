package calc

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// finder is a policy of a namespace, or of all, with so many selectors that find network sets with the label found.
func finder(namespace string, first, rules int) model.PolicyUpdate {
	u := selecting(namespace, "finder", 0, rules)
	if namespace == "" {
		u.Key.Kind, u.Policy.Selector = model.KindGlobalNetworkPolicy, sel("all()")
	}
	for i := range rules {
		u.Policy.Ingress[i].Source.Selector = sel(fmt.Sprintf("found == 'yes' && no != 'n%d'", first+i))
	}
	return u
}

// found is a network set of a namespace with so many prefixes, and of others with another seed.
func found(namespace, name, is string, n, seed int) model.NetworkSetUpdate {
	s := &model.NetworkSet{Labels: map[string]string{"found": is}, Profiles: []string{model.NamespaceProfile(namespace)}}
	for i := range n {
		s.Nets = append(s.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(seed), byte(i), 0}), 24))
	}
	return model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: namespace, Name: name}, Set: s}
}

// wantFound compares how many prefixes the sets of policies have, added up, with what is wanted, and with what is counted.
func wantFound(t *testing.T, g *Graph, want int, crowded ...string) {
	t.Helper()
	n, spent := 0, map[pairing]int{}
	for _, d := range g.sets.definitions {
		counted := 0
		for namespace, of := range d.taken {
			if counted += of.nets; of.nets == 0 {
				continue
			}
			for rs := range d.users {
				spent[pairing{rs.account(), namespace}] = 0
			}
		}
		for key, s := range d.sets {
			if key == leftOut {
				continue
			}
			if n += s.len(); s.len() != counted {
				t.Errorf("a set has %d prefixes, %d are counted", s.len(), counted)
			}
		}
	}
	if n != want {
		t.Errorf("%d prefixes are found, want %d", n, want)
	}
	if len(g.sets.selected.found.spent) != len(spent) {
		t.Errorf("what is spent: %v", g.sets.selected.found.spent)
	}
	var got []string
	for _, p := range g.Problems() {
		if strings.Contains(p.Text, "some of these sets are left out") {
			got = append(got, p.Object)
		}
	}
	if strings.Join(got, " ") != strings.Join(crowded, " ") {
		t.Errorf("reported: %v, want %v", got, crowded)
	}
}

// The selectors of a tenant find nothing when they come. Then the labels of a network set change, and each of them would have a copy of
// its prefixes.
func TestSelectorsFindSoManyPrefixesThatComeLater(t *testing.T) {
	g, dp := market(t, 0, 1_000_000)
	g.sets.selected.found.most = 25
	flushed(t, g, dp, finder("evil", 0, 8), finder("shop", 100, 2), finder("", 200, 8), found("evil", "a", "no", 10, 1))
	wantFound(t, g, 0)
	flushed(t, g, dp, found("evil", "a", "yes", 10, 1))
	wantFound(t, g, 2*10+2*10+8*10, "Namespace evil")
	flushed(t, g, dp, found("shop", "b", "yes", 3, 2)) // what the sets of others take leaves room for one's own
	wantFound(t, g, 120+8*3+2*3+8*3, "Namespace evil")
	flushed(t, g, dp, found("shop", "b", "no", 3, 2), found("evil", "a", "yes", 12, 1))
	wantFound(t, g, 2*12+2*12+8*12, "Namespace evil")
	flushed(t, g, dp, found("evil", "a", "yes", 13, 1))
	wantFound(t, g, 1*13+1*13+8*13, "Namespace evil", "Namespace shop")
	flushed(t, g, dp, found("evil", "a", "yes", 3, 1))
	wantFound(t, g, 8*3+2*3+8*3)
	flushed(t, g, dp, found("evil", "a", "yes", 10, 3))
	wantFound(t, g, 2*10+2*10+8*10, "Namespace evil")
	flushed(t, g, dp, finder("evil", 0, 2))
	wantFound(t, g, 2*10+2*10+8*10)
	flushed(t, g, dp, found("evil", "a", "no", 10, 3))
	wantFound(t, g, 0)
	flushed(t, g, dp, found("evil", "a", "yes", 10, 3), model.Absent(finder("evil", 0, 2)), model.Absent(finder("shop", 0, 2)))
	wantFound(t, g, 8*10)
	if flushed(t, g, dp, model.Absent(finder("", 0, 2))); len(g.sets.selected.found.spent)+len(g.sets.selected.found.short)+len(g.sets.selected.found.lacking)+g.sets.selected.found.left.Len() > 0 {
		t.Error("something is left")
	}
}

// What is left out of a selector that one tenant has filled is there for another who comes to have the same selector.
func TestATenantWithTheSameSelectorFindsWhatAnotherHasNoRoomFor(t *testing.T) {
	g, dp := market(t, 0, 1_000_000)
	g.sets.selected.found.most = 25
	flushed(t, g, dp, finder("evil", 0, 8), found("evil", "a", "no", 10, 1))
	flushed(t, g, dp, found("evil", "a", "yes", 10, 1))
	wantFound(t, g, 2*10, "Namespace evil")
	of := func(i int) int {
		key := selectorKey(sel(fmt.Sprintf("found == 'yes' && no != 'n%d'", i)))
		return g.sets.definitions[key].sets[portKey{}].len()
	}
	full := 0
	for of(full) > 0 {
		full++
	}
	flushed(t, g, dp, finder("shop", full, 1))
	if of(full) != 10 {
		t.Errorf("the selector of shop finds %d prefixes, want 10", of(full))
	}
}

// A network set that is left out counts again when there is room. That does not depend on how many pods the selector finds besides, nor on how
// many network sets of others have no room.
func TestNetworkSetsThatAreLeftOutHaveTheirTurn(t *testing.T) {
	g, dp := New(thisNode, WithRoom(1)), newDataplane()
	updates := []model.Update{pod("shop/a", "10.0.0.1"), policyOf("p", "all()", fromSelector("all()")), model.InSync{}}
	for i := range mostTried + 1000 {
		updates = append(updates, pod(fmt.Sprint("other/p", i), fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), on("node-2"), label("n", fmt.Sprint(i%1000))))
	}
	flushed(t, g, dp, updates...)
	for i := range mostTried + 1000 {
		updates = append(updates, found("evil", fmt.Sprint("s", i), "yes", 6, i))
	}
	flushed(t, g, dp, append(updates, found("shop", "s", "yes", 5, 1))...)
	if n := g.sets.selected.found.left.Len(); n != mostTried+1001 {
		t.Fatalf("%d network sets are left out", n)
	}
	g.room.common, g.room.freed = 5, true
	if flushed(t, g, dp); g.networkSets[model.NetworkSetID{Namespace: "shop", Name: "s"}].hasNoRoom() {
		t.Error("there is room for a network set, and it is left out")
	}
}
