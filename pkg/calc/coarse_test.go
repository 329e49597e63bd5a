package calc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// A rule whose selectors find a network set that is left out fails closed: for the limit of its namespace, and for that of who finds it.
func TestRulesOfNetworkSetsThatAreLeftOutFailClosed(t *testing.T) {
	const in, out = `selector found == "yes"`, `around the network sets left out of selector found == "yes"`
	tests := []struct {
		action        model.Action
		negated       bool
		plain, closed string
	}{
		{model.Allow, false, "[Allow in " + in + " (1)]", "[Allow in " + in + " (0)]"},
		{model.Log, false, "[Log in " + in + " (1)]", "[Log in " + in + " (0)]"},
		{model.Deny, false, "[Deny in " + in + " (1)]", "[Deny in " + in + " (0) Deny in " + out + " (1)]"},
		{model.Pass, false, "[Pass in " + in + " (1)]", "[Pass in " + in + " (0) Deny in " + out + " (1)]"},
		{model.Allow, true, "[Allow not in " + in + " (1)]", "[Allow not in " + in + " (0) not in " + out + " (1)]"},
		{model.Log, true, "[Log not in " + in + " (1)]", "[Log not in " + in + " (0) not in " + out + " (1)]"},
		{model.Deny, true, "[Deny not in " + in + " (1)]", "[Deny not in " + in + " (0)]"},
		{model.Pass, true, "[Pass not in " + in + " (1)]",
			"[Pass not in " + in + " (0) not in " + out + " (1) Deny in " + out + " (1) not in " + in + " (0)]"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.action, test.negated), func(t *testing.T) {
			g, dp := market(t, 0, 1_000_000)
			p := selecting("shop", "p", 0, 1)
			p.Policy.Ingress[0].Action, p.Policy.Ingress[0].Source.Selector = test.action, sel("found == 'yes'")
			if test.negated {
				p.Policy.Ingress[0].Source.NotSelector, p.Policy.Ingress[0].Source.Selector = sel("found == 'yes'"), nil
			}
			flushed(t, g, dp, p, found("evil", "a", "yes", 1, 1))
			want := func(what, rules string) {
				t.Helper()
				if got := fmt.Sprint(rulesOf(t, g, "shop/a", model.Ingress)); got != rules {
					t.Errorf("%s: %s, want %s", what, got, rules)
				}
			}
			want("at first", test.plain)
			g.prefixes.most = 0
			flushed(t, g, dp, found("evil", "a", "yes", 1, 2))
			want("past the limit of the namespace", test.closed)
			g.prefixes.most = 1
			flushed(t, g, dp, found("evil", "a", "yes", 1, 1))
			want("then", test.plain)
			g.sets.selected.found.most = 0
			flushed(t, g, dp, found("evil", "a", "no", 1, 1))
			flushed(t, g, dp, found("evil", "a", "yes", 1, 1))
			want("past what the selectors may find", test.closed)
			g.sets.selected.found.most = 1
			g.sets.room.freed = true
			flushed(t, g, dp)
			want("in the end", test.plain)
		})
	}
}

// What covers network sets covers them, is little for each and for all, and covers itself.
func TestCovering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nets []netip.Prefix
		for range rapid.IntRange(0, 60).Draw(t, "prefixes") {
			var a netip.Addr
			if rapid.Bool().Draw(t, "v4") {
				a = netip.AddrFrom4([4]byte{byte(rapid.IntRange(0, 40).Draw(t, "a")) * 6, byte(rapid.IntRange(0, 255).Draw(t, "b"))})
			} else {
				a = netip.AddrFrom16([16]byte{byte(rapid.IntRange(0, 255).Draw(t, "a")), byte(rapid.IntRange(0, 255).Draw(t, "b"))})
			}
			nets = append(nets, netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")).Masked())
		}
		cover := coarse(nets)
		for _, p := range nets {
			if !slices.ContainsFunc(cover, func(c netip.Prefix) bool { return c.Bits() <= p.Bits() && c.Contains(p.Addr()) }) {
				t.Fatalf("%v does not cover %s", cover, p)
			}
		}
		if len(cover) > 2*mostCovering {
			t.Fatalf("%d prefixes cover them", len(cover))
		}
		for _, c := range cover {
			if c != c.Masked() || c.Addr().Is4() && c.Bits() > coarse4 || c.Bits() > coarse6 {
				t.Fatalf("%s is not one that covers", c)
			}
		}
		again := coarse(cover)
		slices.SortFunc(cover, netip.Prefix.Compare)
		slices.SortFunc(again, netip.Prefix.Compare)
		if !slices.Equal(cover, again) {
			t.Fatalf("%v, and again %v", cover, again)
		}
	})
}

func BenchmarkCovering(b *testing.B) {
	var nets []netip.Prefix
	for i := range MaxNetworkSetNets {
		nets = append(nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 9), byte(i >> 1), byte(i << 7), 0}), 25))
	}
	for b.Loop() {
		coarse(nets)
	}
}

// Prefixes leave a set one flush after the prefixes that cover them have joined another one, and with it the rules that refer to that.
// Otherwise an address could be in neither for the rules in force. They leave then, whatever else is left out.
func TestPrefixesLeaveAfterTheirCoverHasJoined(t *testing.T) {
	g, dp := market(t, 0, 1_000_000)
	p := selecting("shop", "p", 0, 1)
	p.Policy.Ingress[0].Action, p.Policy.Ingress[0].Source.Selector = model.Deny, sel("found == 'yes'")
	other := func(seed byte) model.NetworkSetUpdate {
		u := found("evil", "b", "yes", 3, 1)
		for i := range u.Set.Nets {
			u.Set.Nets[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{seed, 0, byte(i), 0}), 24)
		}
		return u
	}
	flushed(t, g, dp, p, found("evil", "a", "yes", 5, 1), other(2))
	want := func(what string, in, out int, more bool, updates ...model.Update) {
		t.Helper()
		g.Apply(updates)
		if err := dp.apply(g.Flush()); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for id, members := range dp.Sets {
			prefix, _, _ := strings.Cut(string(id), ":")
			got[prefix+":"] += len(members)
		}
		if got[string(kindSelector)+":"] != in || got[model.PrefixPast] != out || g.HasMore() != more {
			t.Errorf("%s: %v, and more is to follow: %t", what, got, g.HasMore())
		}
	}
	g.prefixes.most = 4
	want("one is left out", 8, 1, true, found("evil", "a", "yes", 6, 1))
	g.prefixes.most = 2
	want("the other one, too, and the first one leaves", 3, 2, true, other(3))
	g.Linger(true)
	want("that lingers", 3, 2, false)
	if !g.HasLate() {
		t.Error("none is late")
	}
	g.Linger(false)
	want("that leaves", 0, 2, false)
	if g.HasLate() {
		t.Error("one is late")
	}
	g.prefixes.most = 20
	want("both count", 9, 0, false, found("evil", "a", "yes", 6, 1))
}

// What the sets of a refused policy lack is announced: its earlier rules may be in force.
func TestWhatTheSetsOfARefusedPolicyLackIsAnnounced(t *testing.T) {
	g, dp := market(t, 0, 1_000_000)
	g.sets.spending.references, g.sets.room.common, g.sets.room.assured = 1, 5, 0
	want := func(what, refused string, past int) {
		t.Helper()
		wantRefused(t, g, "", refused)
		found, definitions := 0, map[string]bool{}
		for id := range dp.Sets {
			if id.IsPast() {
				found++
			}
			if d := id.Definition(); d != "" {
				definitions[d] = true
			}
		}
		if found != past || len(definitions) != 1 {
			t.Errorf("%s: %d sets of what others lack, want %d, of one definition: %v", what, found, past, definitions)
		}
	}
	flushed(t, g, dp, finder("shop", 0, 1), found("evil", "a", "yes", 5, 1))
	want("in force", "", 0)
	flushed(t, g, dp, finder("shop", 0, 2))
	want("refused", "finder", 0)
	flushed(t, g, dp, found("evil", "b", "yes", 1, 2))
	want("left out", "finder", 1)
	flushed(t, g, dp, model.Absent(found("evil", "a", "yes", 5, 1)))
	want("in again", "finder", 0)
	flushed(t, g, dp, found("evil", "a", "yes", 5, 1), finder("shop", 0, 1))
	want("in force again", "", 1)
}
