package syncer

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/margay-project/margay/pkg/model"
	"pgregory.net/rapid"
)

func tier(name string, order float64) model.Update {
	return model.TierUpdate{Name: name, Tier: &model.Tier{Order: order, Default: model.Deny}}
}

func noTier(name string) model.Update { return model.TierUpdate{Name: name} }

func policy(kind model.PolicyKind, name string) model.Update {
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: kind, Namespace: "shop", Name: name}, Policy: &model.Policy{}}
}

func TestBuffer(t *testing.T) {
	type updates = []model.Update
	inSync := model.InSync{}
	tests := []struct {
		name  string
		taken updates // put and taken before
		put   updates
		want  updates
	}{
		{"nothing", nil, nil, nil},
		{"in order", nil, updates{tier("b", 1), tier("a", 1)}, updates{tier("b", 1), tier("a", 1)}},
		{"newer replaces older in place", nil, updates{tier("a", 1), tier("b", 1), tier("a", 2)},
			updates{tier("a", 2), tier("b", 1)}},
		{"deletion of something never taken vanishes", nil, updates{tier("a", 1), tier("b", 1), noTier("a"), noTier("c")},
			updates{tier("b", 1)}},
		{"deletion of something taken stays", updates{tier("a", 1)}, updates{noTier("a")}, updates{noTier("a")}},
		{"deletion replaces an update of something taken", updates{tier("a", 1)}, updates{tier("a", 2), noTier("a")},
			updates{noTier("a")}},
		{"deletion waits behind what came before it", updates{tier("a", 1)}, updates{tier("a", 2), tier("b", 1), noTier("a")},
			updates{tier("b", 1), noTier("a")}},
		{"deletion before in-sync stays before it", updates{tier("a", 1)}, updates{tier("a", 2), inSync, tier("b", 1), noTier("a")},
			updates{noTier("a"), inSync, tier("b", 1)}},
		{"creation after deletion is an update", updates{tier("a", 1)}, updates{noTier("a"), tier("a", 2)},
			updates{tier("a", 2)}},
		{"deletion after a taken deletion vanishes", updates{tier("a", 1), noTier("a")}, updates{noTier("a")}, nil},
		{"kinds of policies are told apart", nil,
			updates{policy(model.KindNetworkPolicy, "x"), policy(model.KindKubernetesNetworkPolicy, "x")},
			updates{policy(model.KindNetworkPolicy, "x"), policy(model.KindKubernetesNetworkPolicy, "x")}},
		{"in-sync keeps its place", nil, updates{tier("a", 1), inSync, tier("b", 1), tier("a", 2)},
			updates{tier("a", 2), inSync, tier("b", 1)}},
		{"a second in-sync waits for what came since", nil, updates{inSync, tier("a", 1), inSync},
			updates{tier("a", 1), inSync}},
		{"in-sync may come again", updates{inSync}, updates{inSync}, updates{inSync}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBuffer()
			b.Put(tt.taken)
			b.Drain(0)
			b.Put(tt.put)
			if n := b.Len(); n != len(tt.want) {
				t.Errorf("Len = %d, want %d", n, len(tt.want))
			}
			if diff := cmp.Diff(tt.want, b.Drain(0)); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBufferTellsEveryKindApart(t *testing.T) {
	us := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("", "x"), Endpoint: &model.Endpoint{}},
		model.ProfileUpdate{Name: "x", Profile: &model.Profile{}},
		model.TierUpdate{Name: "x", Tier: &model.Tier{}},
		model.PolicyUpdate{Key: model.PolicyKey{Name: "x"}, Policy: &model.Policy{}},
		model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "x"}, Set: &model.NetworkSet{}},
		model.ServiceUpdate{Key: model.ServiceKey{Name: "x"}, Service: &model.Service{}},
		model.EndpointSliceUpdate{ID: model.EndpointSliceID{Name: "x"}, Slice: &model.EndpointSlice{}},
		model.NodeUpdate{Name: "x", Node: &model.Node{}},
	}
	b := NewBuffer()
	b.Put(us)
	if diff := cmp.Diff(us, b.Drain(0)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	gone := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("", "x")},
		model.ProfileUpdate{Name: "x"},
		model.TierUpdate{Name: "x"},
		model.PolicyUpdate{Key: model.PolicyKey{Name: "x"}},
		model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "x"}},
		model.ServiceUpdate{Key: model.ServiceKey{Name: "x"}},
		model.EndpointSliceUpdate{ID: model.EndpointSliceID{Name: "x"}},
		model.NodeUpdate{Name: "x"},
	}
	for range 2 { // the second time there is nothing left to delete
		b.Put(gone)
		if diff := cmp.Diff(gone, b.Drain(0)); diff != "" {
			t.Errorf("deleted (-want +got):\n%s", diff)
		}
		gone = nil
	}
	if len(b.present)+len(b.pending) != 0 {
		t.Errorf("the buffer still knows %d present and %d pending", len(b.present), len(b.pending))
	}
}

func TestBufferAnnouncesWhatIsLeft(t *testing.T) {
	b := NewBuffer()
	ready := func() bool {
		select {
		case <-b.Ready():
			return true
		default:
			return false
		}
	}
	if ready() {
		t.Error("an empty buffer is ready")
	}
	b.Put([]model.Update{tier("a", 1), tier("b", 1), tier("c", 1)})
	b.Put([]model.Update{tier("d", 1)})
	for _, want := range []int{3, 1} {
		if !ready() {
			t.Fatal("a filled buffer is not ready")
		}
		if got := len(b.Drain(3)); got != want {
			t.Errorf("took %d, want %d", got, want)
		}
	}
	if ready() {
		t.Error("ready after everything was taken")
	}
}

func TestBufferMemoryIsBoundedByTheDatastore(t *testing.T) {
	b := NewBuffer()
	for i := range 1000 {
		name := string(rune('a' + i))
		b.Put([]model.Update{tier(name, 1), tier("kept", float64(i)), noTier(name)})
	}
	if b.Len() != 1 || len(b.pending) != 1 || len(b.queue) > 70 {
		t.Errorf("%d updates wait, %d pending, in %d slots; want 1", b.Len(), len(b.pending), len(b.queue))
	}
}

// A consumer that applies what it takes, whenever and however much it takes, must end with the producer's state, must
// never be told to delete what it does not have, and must have the state of the barrier when InSync reaches it.
func TestBufferDeliversTheStateOfTheSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuffer()
		source, consumer := map[string]float64{}, map[string]float64{}
		version := 0.0
		var atBarrier map[string]float64 // versions the consumer must have reached, at least, when InSync comes
		take := func(limit int) {
			for _, u := range b.Drain(limit) {
				switch u := u.(type) {
				case model.InSync:
					for name, v := range atBarrier {
						got, ok := consumer[name]
						if newest, exists := source[name]; (!ok && exists && newest == v) || (ok && got < v) {
							t.Fatalf("InSync before %s reached version %v: %v", name, v, consumer)
						}
					}
					atBarrier = nil
				case model.TierUpdate:
					if _, had := consumer[u.Name]; u.Tier == nil && !had {
						t.Fatalf("deletion of %s, which was never delivered", u.Name)
					} else if u.Tier == nil {
						delete(consumer, u.Name)
					} else {
						consumer[u.Name] = u.Tier.Order
					}
				}
			}
		}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := name.Draw(t, "name")
				version++
				source[n] = version
				b.Put([]model.Update{tier(n, version)})
			},
			"delete": func(t *rapid.T) {
				n := name.Draw(t, "name")
				delete(source, n)
				b.Put([]model.Update{noTier(n)})
			},
			"in-sync": func(t *rapid.T) {
				atBarrier = maps.Clone(source)
				b.Put([]model.Update{model.InSync{}})
			},
			"take": func(t *rapid.T) { take(rapid.IntRange(1, 3).Draw(t, "limit")) },
			"": func(t *rapid.T) {
				if n := b.Len(); n > 5 {
					t.Fatalf("%d slots for 4 objects and InSync", n)
				}
			},
		})
		take(math.MaxInt)
		if diff := cmp.Diff(source, consumer); diff != "" {
			t.Fatalf("the consumer ends elsewhere (-source +consumer):\n%s", diff)
		}
	})
}

// slice is an EndpointSlice with so many addresses.
func slice(namespace, name string, addresses int) model.Update {
	u := model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: namespace, Name: name}, Slice: &model.EndpointSlice{}}
	for i := range addresses {
		u.Slice.Addrs = append(u.Slice.Addrs, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	return u
}

func noSlice(namespace, name string) model.Update {
	return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: namespace, Name: name}}
}

func TestObjectsOfManyAddressesLetOthersPass(t *testing.T) {
	b := NewBuffer()
	b.Put([]model.Update{slice("a", "1", MostAddresses), slice("a", "2", MostAddresses), tier("gone", 1), policyOf("a"), policyOf("b")})
	if got := b.Drain(100); len(got) != 5 {
		t.Fatalf("before InSync none passes: %d", len(got))
	}
	b.Put([]model.Update{model.InSync{}})
	b.Drain(100)
	large := MostAddresses + 1
	b.Put([]model.Update{
		slice("a", "1", large), slice("a", "6", 1), slice("a", "3", MostAddresses-1), slice("a", "4", 1),
		slice("b", "1", 1), noTier("gone"), noPolicyOf("a"), noPolicyOf("b"), tier("new", 1), slice("a", "5", 0),
	})
	for i, want := range [][]model.Update{
		{slice("a", "1", large), slice("b", "1", 1), noTier("gone"), noPolicyOf("b"), tier("new", 1), slice("a", "5", 0)},
		{slice("a", "6", 1), slice("a", "3", MostAddresses-1)},
		{slice("a", "4", 1), noPolicyOf("a")},
		nil,
	} {
		if diff := cmp.Diff(want, b.Drain(100), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("Drain %d:\n%s", i+1, diff)
		}
	}
}

// However many objects of a namespace wait, those of others behind them do not. Before, they did while more waited than one Drain returns.
func TestManyObjectsThatWaitLetOthersPass(t *testing.T) {
	const limit, many = 20, 100
	for what, of := range map[string]func(i int) model.Update{
		"for room":            func(i int) model.Update { return slice("a", fmt.Sprint(i), MostAddresses) },
		"for a change of one": func(i int) model.Update { return networkSet("a", fmt.Sprint(i), 1) },
	} {
		b := NewBuffer()
		b.Put([]model.Update{model.InSync{}})
		b.Drain(limit)
		for i := range many {
			b.Put([]model.Update{of(i)})
		}
		if what == "for a change of one" {
			b.Hold(map[string]bool{"a": true})
		}
		b.Put([]model.Update{policyOf("b")})
		if got := b.Drain(limit); !slices.ContainsFunc(got, func(u model.Update) bool { return cmp.Equal(u, policyOf("b")) }) {
			t.Errorf("%d that wait %s hide one of another namespace", many, what)
		}
	}
}

// Network sets and EndpointSlices of a namespace have one bound together.
func TestNetworkSetsOfManyPrefixesLetOthersPass(t *testing.T) {
	set := func(namespace, name string, prefixes int) model.Update {
		u := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: namespace, Name: name}, Set: &model.NetworkSet{}}
		for i := range prefixes {
			u.Set.Nets = append(u.Set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32))
		}
		return u
	}
	b := NewBuffer()
	b.Put([]model.Update{model.InSync{}})
	b.Drain(100)
	b.Put([]model.Update{set("a", "1", MostAddresses), slice("a", "2", 1), set("a", "3", 1), set("", "1", MostAddresses), tier("new", 1)})
	for i, want := range [][]model.Update{
		{set("a", "1", MostAddresses), set("", "1", MostAddresses), tier("new", 1)},
		{slice("a", "2", 1), set("a", "3", 1)},
		nil,
	} {
		if diff := cmp.Diff(want, b.Drain(100), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("Drain %d:\n%s", i+1, diff)
		}
	}
}

// Addresses that go are work, too: those of deleted objects, and of objects that have fewer.
func TestObjectsThatLoseManyAddressesLetOthersPass(t *testing.T) {
	for what, less := range map[string]func(namespace, name string) model.Update{
		"deleted": noSlice, "emptied": func(namespace, name string) model.Update { return slice(namespace, name, 0) },
	} {
		b := NewBuffer()
		b.Put([]model.Update{slice("a", "1", MostAddresses), slice("a", "2", MostAddresses), model.InSync{}})
		b.Drain(100)
		b.Put([]model.Update{less("a", "1"), less("a", "2"), tier("new", 1)})
		for i, want := range [][]model.Update{{less("a", "1"), tier("new", 1)}, {less("a", "2")}, nil} {
			if diff := cmp.Diff(want, b.Drain(100), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s, Drain %d:\n%s", what, i+1, diff)
			}
		}
	}
}

func TestInSyncPassesNothing(t *testing.T) {
	b := NewBuffer()
	b.Put([]model.Update{model.InSync{}})
	b.Drain(1)
	b.Put([]model.Update{slice("a", "1", MostAddresses), slice("a", "2", 1), model.InSync{}, tier("later", 1)})
	for i, want := range []int{1, 3} {
		if got := b.Drain(100); len(got) != want {
			t.Errorf("Drain %d has %d updates, want %d", i+1, len(got), want)
		}
	}
}

// Whatever is left behind, a deletion comes after everything that was put before it, and in the end nothing is lost.
func TestADeletionPassesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuffer()
		b.Put([]model.Update{model.InSync{}})
		b.Drain(1)
		version, due := 0, map[string]int{} // of what was put: when, by name
		behind := map[string]int{}          // of deletions: after which version they are to come
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			version++
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1, 2:
				b.Put([]model.Update{slice("n", name, rapid.SampledFrom([]int{0, 1, MostAddresses / 2, MostAddresses}).Draw(t, "size"))})
				due[name] = version
				delete(behind, name)
			case 3, 4:
				b.Put([]model.Update{noSlice("n", name)})
				delete(due, name)
				behind[name] = version
			default:
				for _, u := range b.Drain(rapid.IntRange(1, 5).Draw(t, "limit")) {
					u, is := u.(model.EndpointSliceUpdate)
					if !is {
						t.Fatalf("%v was not put", u)
					}
					if u.Slice != nil {
						delete(due, u.ID.Name)
						continue
					}
					for other, put := range due {
						// A newer version goes to the place of the older one, so it may be put later than the deletion.
						if put < behind[u.ID.Name] {
							t.Fatalf("the deletion of %s, put as %d, passes %s, put as %d", u.ID.Name, behind[u.ID.Name], other, put)
						}
					}
				}
			}
		}
		for last := b.Len() + 1; b.Len() > 0; {
			b.Drain(100)
			if b.Len() >= last {
				t.Fatalf("%d updates wait, and are not drained", b.Len())
			}
			last = b.Len()
		}
	})
}

func networkSet(namespace, name string, prefixes int) model.NetworkSetUpdate {
	u := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: namespace, Name: name}}
	if prefixes > 0 {
		u.Set = &model.NetworkSet{Nets: make([]netip.Prefix, prefixes)}
	}
	return u
}

func policyOf(namespace string) model.PolicyUpdate {
	return model.PolicyUpdate{Key: model.PolicyKey{Namespace: namespace, Name: "p"}, Policy: &model.Policy{}}
}

func noPolicyOf(namespace string) model.Update { return model.Absent(policyOf(namespace)) }

// While a network set changes in parts, later updates and deletions of its namespace wait, and those of other namespaces and of pods do not. A newer version
// of the set comes after the deletions that wait.
func TestWhatComesAfterALargeNetworkSetWaitsForIt(t *testing.T) {
	type update = model.Update
	const large = MostAddresses + 1
	for what, gone := range map[string]bool{"comes": false, "goes": true} {
		b := NewBuffer()
		b.Put([]update{tier("gone", 1), policyOf("gone"), pod("a"), networkSet("a", "small", 1), networkSet("a", "large", large), model.InSync{}})
		b.Drain(100)
		first := networkSet("a", "large", large)
		if gone {
			first = networkSet("a", "large", 0)
		}
		drains := func(step string, want ...update) {
			t.Helper()
			if diff := cmp.Diff(want, b.Drain(100), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("%s, %s:\n%s", what, step, diff)
			}
		}
		b.Put([]update{first, networkSet("a", "small", 2), policyOf("a"), model.Absent(pod("a")), noTier("gone"), noPolicyOf("gone"), policyOf("b"), tier("new", 1),
			networkSet("b", "other", 1)})
		drains("at first", first, model.Absent(pod("a")), noTier("gone"), noPolicyOf("gone"), policyOf("b"), tier("new", 1), networkSet("b", "other", 1))
		b.Hold(map[string]bool{"a": true})
		b.Put([]update{networkSet("a", "large", large+1), policyOf("")})
		drains("while it changes", policyOf(""))
		select {
		case <-b.Ready():
			if got := b.Drain(100); len(got) > 0 {
				t.Errorf("%s: %v", what, got)
			}
		default:
		}
		select {
		case <-b.Ready():
			t.Errorf("%s: what is held is announced", what)
		default:
		}
		b.Hold(nil)
		select {
		case <-b.Ready():
		default:
			t.Errorf("%s: what was held is not announced", what)
		}
		drains("then", networkSet("a", "small", 2), policyOf("a"))
		drains("at last", networkSet("a", "large", large+1))
	}
}

// While only policies of a namespace wait, pods of it go: a tenant may have thousands of policies that take long, and the address of a pod that
// has gone is another's. What the policies may replace waits behind them.
func TestDeletionsOfPodsDoNotWaitForPolicies(t *testing.T) {
	b := NewBuffer()
	noSet := model.Absent(networkSet("a", "gone", 1))
	b.Put([]model.Update{pod("a"), policyOf("a"), networkSet("a", "gone", 1), model.InSync{}})
	b.Drain(100)
	drains := func(want ...model.Update) {
		t.Helper()
		if diff := cmp.Diff(want, b.Drain(100), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Error(diff)
		}
	}
	b.Hold(map[string]bool{"a": false})
	b.Put([]model.Update{policyOf("a"), noSet, model.Absent(pod("a")), networkSet("a", "new", 1), policyOf("b")})
	drains(model.Absent(pod("a")), networkSet("a", "new", 1), policyOf("b"))
	b.Hold(nil)
	drains(policyOf("a"), noSet)
	b.Hold(map[string]bool{"a": false})
	b.Put([]model.Update{noPolicyOf("a")})
	drains(noPolicyOf("a"))
}

func pod(namespace string) model.Update {
	return model.EndpointUpdate{ID: model.WorkloadID(namespace, "x"), Endpoint: &model.Endpoint{}}
}

// An author of two namespaces has a large network set change in one of them at any time. Before, deletions waited for as long: of policies and
// pods of others, too, whose addresses stayed theirs meanwhile.
func TestLargeNetworkSetsInTurnKeepNoDeletionOfOthers(t *testing.T) {
	gone := []model.Update{model.Absent(pod("shop")), noPolicyOf("shop"), noPolicyOf(""), noTier("t")}
	b := NewBuffer()
	b.Put([]model.Update{pod("shop"), policyOf("shop"), policyOf(""), tier("t", 1), networkSet("a", "s", 1), networkSet("b", "s", 1), model.InSync{}})
	b.Drain(100)
	turn := func(i int) string { return []string{"a", "b"}[i%2] }
	b.Put([]model.Update{networkSet(turn(0), "s", MostAddresses+1)})
	b.Drain(100)
	b.Hold(map[string]bool{turn(0): true})
	b.Put(gone)
	for i := 1; i < 100; i++ {
		b.Put([]model.Update{networkSet(turn(i), "s", MostAddresses+1)})
		for _, u := range b.Drain(100) {
			if _, present := model.KeyOf(u); !present {
				gone = slices.DeleteFunc(gone, func(g model.Update) bool { return cmp.Equal(g, u) })
			}
		}
		if len(gone) == 0 {
			return
		}
		b.Hold(map[string]bool{turn(i): true}) // that of the other namespace is whole
	}
	t.Errorf("these wait without end: %v", gone)
}

// A cluster-wide network set may replace what any author deletes, but the address of a pod that has gone is another pod's.
func TestDeletionsWaitForAClusterWideNetworkSet(t *testing.T) {
	b := NewBuffer()
	b.Put([]model.Update{policyOf("a"), tier("gone", 1), pod("a"), model.InSync{}})
	b.Drain(100)
	b.Put([]model.Update{networkSet("", "s", MostAddresses+1), noPolicyOf("a"), noTier("gone"), policyOf("b"), model.Absent(pod("a"))})
	for i, want := range []int{3, 0, 2} {
		if got := b.Drain(100); len(got) != want {
			t.Errorf("Drain %d: %v, want %d", i+1, got, want)
		}
		if b.Hold(nil); i == 0 {
			b.Hold(map[string]bool{"": true})
		}
	}
}

func profile(name, value string) model.ProfileUpdate {
	return model.ProfileUpdate{Name: name, Profile: &model.Profile{Labels: map[string]string{"a": value}}}
}

// While pods get other labels of their ServiceAccount or Namespace in parts, other labels of those in the same namespace wait, as policies and
// deletions do. Pods do not, nor does a ServiceAccount that the consumer lacks, nor anything of other namespaces.
func TestWhatComesAfterInheritedLabelsWaitsForThem(t *testing.T) {
	b := NewBuffer()
	b.Put([]model.Update{profile("ksa.a.x", "1"), profile("ksa.a.y", "1"), profile("kns.a", "1"), profile("kns.b", "1"), pod("a"), pod("b"), policyOf("b"), model.InSync{}})
	b.Drain(100)
	drains := func(want ...model.Update) {
		t.Helper()
		if diff := cmp.Diff(want, b.Drain(100), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Error(diff)
		}
	}
	b.Hold(map[string]bool{"a": true})
	b.Put([]model.Update{profile("ksa.a.x", "2"), profile("kns.a", "2"), model.Absent(profile("ksa.a.y", "")), policyOf("a"), profile("ksa.a.z", "1"), profile("kns.b", "2"),
		model.Absent(pod("a")), noPolicyOf("b")})
	drains(profile("ksa.a.z", "1"), profile("kns.b", "2"), model.Absent(pod("a")), noPolicyOf("b"))
	b.Put([]model.Update{profile("ksa.a.x", "3"), profile("ksa.a.y", "2")}) // it is there again before it was gone
	if got := b.Drain(100); len(got) > 0 {
		t.Errorf("these do not wait: %v", got)
	}
	b.Hold(nil)
	drains(profile("ksa.a.x", "3"), profile("kns.a", "2"), profile("ksa.a.y", "2"), policyOf("a"))
}
