package verify

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// A difference that was found is reported if one of its addresses is still what it was, with that one; not if the objects or the kernel
// have changed since, for the remote addresses or for the endpoint's own.
func TestADifferenceHoldsWhileAnAddressIsWhatItWas(t *testing.T) {
	first, second := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	class := func(of ...netip.Addr) func(netip.Addr) (Entry, error) {
		return func(a netip.Addr) (Entry, error) {
			if slices.Contains(of, a) {
				return Entry{Class: 2}, nil
			}
			return Entry{}, nil
		}
	}
	gone := errors.New("no such map")
	for name, c := range map[string]struct {
		web   []netip.Addr // now in the set
		entry func(netip.Addr) (Entry, error)
		want  netip.Addr // the remote address of the difference; not valid: it does not hold
		err   error
	}{
		"nothing has changed":            {[]netip.Addr{first, second}, class(first, second), first, nil},
		"the first has left the set":     {[]netip.Addr{second}, class(first, second), second, nil},
		"the kernel has the first right": {[]netip.Addr{first, second}, class(second), second, nil},
		"both have left":                 {nil, class(first, second), netip.Addr{}, nil},
		"the kernel has both right":      {[]netip.Addr{first, second}, class(), netip.Addr{}, nil},
		"the pod itself has joined":      {[]netip.Addr{first, second, policytest.Own4}, class(first, second), netip.Addr{}, nil},
		"the kernel cannot be asked":     {[]netip.Addr{first, second}, func(netip.Addr) (Entry, error) { return Entry{}, gone }, netip.Addr{}, gone},
	} {
		for _, d := range []model.Direction{model.Ingress, model.Egress} {
			rule := model.MatchRule{Action: model.Deny, Source: model.Side{In: []model.SetID{"web"}}}
			if d == model.Egress {
				rule.Source, rule.Destination = rule.Destination, rule.Source
			}
			p := policytest.OnePolicy(d, rule, model.MatchRule{})
			atoms := NewAtoms()
			atoms.AddPolicy(p)
			r := NewRegions(atoms, func() error { return nil })
			r.AddMembers("web", policytest.Prefixes("10.1.0.1/32", "10.1.0.2/32"))
			r.AddEntries([]Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0"), Class: 1},
				{Prefix: netip.MustParsePrefix("10.1.0.0/30"), Class: 2}})
			r.Ask(policytest.Own4)
			pairs, err := r.Pairs()
			if err != nil {
				t.Fatal(err)
			}
			compared := &Comparison{Atoms: atoms, Pairs: pairs, Of: r.Of, Pause: func() error { return nil }}
			found, err := compared.CompareVerdicts(p, []netip.Addr{policytest.Own4}, allowing{}, 1)
			if err != nil || len(found.Differences) == 0 {
				t.Fatalf("%d differences, %v", len(found.Differences), err)
			}
			f := &found.Differences[0]
			holds, err := compared.Holds(p, f, func(_ model.SetID, a netip.Addr) bool { return slices.Contains(c.web, a) }, c.entry)
			remote, own := f.Packet.Src, f.Packet.Dst
			if d == model.Egress {
				remote, own = own, remote
			}
			if !errors.Is(err, c.err) || holds != c.want.IsValid() || holds && remote != c.want || own != policytest.Own4 {
				t.Errorf("%s, %s: holds %v for %v and %v, %v; want %v", name, d, holds, remote, own, err, c.want)
			}
		}
	}
}
