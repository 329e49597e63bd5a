package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/margay-project/margay/pkg/selector"
)

func manyRules(n int) []Rule {
	rules := make([]Rule, n)
	for i := range rules {
		rules[i] = Rule{Action: Allow, Index: i, Source: Entity{
			Nets:     []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)},
			Selector: selector.Equal("app", fmt.Sprint(i%3)),
		}}
	}
	return rules
}

func TestAPackedPolicyComesBackAsItWas(t *testing.T) {
	for _, p := range []*Policy{
		{Tier: "default", Selector: selector.All(), AppliesIngress: true, Ingress: manyRules(mostPlain + 1)},
		{Tier: "default", Selector: selector.All(), AppliesEgress: true, Staged: true, Egress: manyRules(1000)},
		{Selector: selector.All(), Ingress: manyRules(40), Egress: manyRules(40)},
	} {
		packed := p.Pack()
		if len(packed.Ingress)+len(packed.Egress) > 0 {
			t.Fatalf("%d rules are not packed", len(packed.Ingress)+len(packed.Egress))
		}
		if again := packed.Pack(); again != packed {
			t.Error("a packed policy is packed once more")
		}
		if got := packed.Unpack(); !reflect.DeepEqual(got, p) {
			t.Errorf("got %+v, want %+v", got, p)
		}
		if got, want := packed.Rules(), p.Rules(); !reflect.DeepEqual(got, want) {
			t.Errorf("rules %+v, want %+v", got, want)
		}
	}
}

func TestAPolicyOfFewRulesStaysAsItIs(t *testing.T) {
	p := &Policy{Selector: selector.All(), Ingress: manyRules(mostPlain)}
	if p.Pack() != p || p.Unpack() != p {
		t.Error("it is packed")
	}
	if gone := (PolicyUpdate{}); Pack(gone) != Update(gone) || Unpack(gone) != Update(gone) {
		t.Error("a deletion is not the same any more")
	}
}
