package calc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// addressesTested are all that the prefixes of drawNets tell apart.
var addressesTested = func() (all []netip.Addr) {
	for i := range 64 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}))
	}
	return all
}()

func drawNets(t *rapid.T, most int) []netip.Prefix {
	nets := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := rapid.SampledFrom(addressesTested).Draw(t, "address")
		p, _ := a.Prefix(a.BitLen() - rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 5, 6}).Draw(t, "host bits"))
		return p
	}), 0, most).Draw(t, "nets")
	slices.SortFunc(nets, netip.Prefix.Compare)
	return slices.Compact(nets)
}

// memberships are the sets that each address is in.
func memberships(dp *dataplane) (all []string) {
	ids := slices.Sorted(maps.Keys(dp.Sets))
	for _, a := range addressesTested {
		text := ""
		for _, id := range ids {
			for p := range dp.Sets[id] {
				if p.Contains(a) {
					text += string(id) + "\n"
					break
				}
			}
		}
		all = append(all, text)
	}
	return all
}

// A large change of a network set comes in parts. Each address has all of its memberships of before, until it has all of those after, and
// the end is what it is at once.
func TestNetworkSetsTurnInPartsAndNoAddressIsBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w := newGraph(thisNode), newDataplane(), world{}
		g.InParts(rapid.IntRange(1, 4).Draw(t, "most"))
		apply := func(updates ...model.Update) {
			for _, u := range updates {
				w.set(u)
			}
			g.Apply(updates)
		}
		flush := func() {
			if err := dp.apply(g.Flush()); err != nil {
				t.Fatal(err)
			}
			checkSpending(t, g)
		}
		labels := func() map[string]string {
			return map[string]string{"a": rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "label"), "b": rapid.SampledFrom([]string{"1", "1", "2"}).Draw(t, "label")}
		}
		var from []model.Rule
		for _, s := range []string{"a == '1'", "a != '1' && has(b)", "b == '1' || a == '2'"} {
			from = append(from, model.Rule{Action: model.Allow, Source: model.Entity{Selector: sel(s)}})
		}
		apply(pod("shop/a", "10.9.0.2"), model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"},
			Policy: &model.Policy{Tier: model.TierDefault, Selector: sel("all()"), AppliesIngress: true, Ingress: from}})
		for i := range 2 { // others, in which some of the addresses are besides
			apply(model.NetworkSetUpdate{ID: model.NetworkSetID{Name: fmt.Sprint("other", i)}, Set: &model.NetworkSet{Nets: drawNets(t, 3), Labels: labels()}})
		}
		g.Apply([]model.Update{model.InSync{}})
		flush()
		id, between := model.NetworkSetID{Namespace: "shop", Name: "large"}, []string(nil)
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			u := model.NetworkSetUpdate{ID: id}
			if rapid.IntRange(0, 4).Draw(t, "gone") > 0 {
				u.Set = &model.NetworkSet{Nets: drawNets(t, 30), Labels: labels()}
			}
			before := memberships(dp)
			if between == nil {
				between = before
			}
			apply(u)
			after := memberships(fresh(t, thisNode, w))
			was := slices.Clone(before)
			for parts := 0; parts == 0 || len(g.Turning()) > 0; parts++ {
				flush()
				for i, now := range memberships(dp) {
					if now != before[i] && now != between[i] && now != after[i] {
						t.Fatalf("%s is in\n%sbefore it was in\n%sand then in\n%s", addressesTested[i], now, before[i], after[i])
					}
					if was[i] == after[i] && now != after[i] && now != between[i] {
						t.Fatalf("%s is as it was again", addressesTested[i])
					}
					was[i] = now
				}
				if parts > 1000 {
					t.Fatal("it does not end")
				}
				if rapid.IntRange(0, 9).Draw(t, "interrupted") == 0 {
					break // by the next change, before which this one is made at once
				}
			}
			between = after
		}
		for len(g.Turning()) > 0 {
			flush()
		}
		requireSame(t, fresh(t, thisNode, w), dp)
		g.InParts(0)
		checkEmptied(t, g, dp, w)
	})
}

// A change in parts ends with the new version of the set: when others of its namespace have left no room for it, and then leave some again, it
// is that version that comes back.
func TestANetworkSetThatHasTurnedComesBackAsItIs(t *testing.T) {
	const room = 20
	g, dp, w := newGraph(thisNode), newDataplane(), world{}
	g.InParts(2)
	g.networkSetTable.prefixes.most = room
	apply := func(updates ...model.Update) {
		t.Helper()
		for _, u := range updates {
			w.set(u)
		}
		g.Apply(updates)
		for parts := 0; parts == 0 || len(g.Turning()) > 0; parts++ {
			if err := dp.apply(g.Flush()); err != nil {
				t.Fatal(err)
			}
		}
	}
	set := func(name string, net byte, n int) model.NetworkSetUpdate {
		u := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "shop", Name: name}, Set: &model.NetworkSet{Labels: map[string]string{"a": "1"}}}
		for i := range n {
			u.Set.Nets = append(u.Set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, net, byte(i)}), 32))
		}
		return u
	}
	from := []model.Rule{{Action: model.Allow, Source: model.Entity{Selector: sel("a == '1'")}}}
	g.Apply([]model.Update{model.InSync{}})
	apply(pod("shop/a", "10.9.0.2"), set("large", 0, room/2), model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"},
		Policy: &model.Policy{Tier: model.TierDefault, Selector: sel("all()"), AppliesIngress: true, Ingress: from}})
	apply(set("large", 1, room/2))
	requireSame(t, fresh(t, thisNode, w), dp)
	others := []model.NetworkSetUpdate{set("other", 2, room/2-2), set("another", 3, room/2-2)}
	apply(others[0], others[1])
	apply(model.Absent(others[0]), model.Absent(others[1]))
	requireSame(t, fresh(t, thisNode, w), dp)
}
