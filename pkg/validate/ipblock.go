package validate

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ipBlock converts an ipBlock peer. A block that cannot be read as a whole is reported and gives false: leaving out
// only an invalid exception would allow the addresses that it excepts.
func (c policyConversion) ipBlock(b *networkingv1.IPBlock, path place) (model.Entity, bool) {
	cidr := func() *field.Path { return path().Child("cidr") }
	block, err := c.cidr(b.CIDR, cidr)
	if err != nil {
		c.leaveOut(cidr(), err)
		return model.Entity{}, false
	}
	e, ok := model.Entity{Nets: []netip.Prefix{block}}, true
	for i, text := range b.Except {
		at := func() *field.Path { return path().Child("except").Index(i) }
		except, err := c.cidr(text, at)
		if err == nil && (except.Bits() <= block.Bits() || !block.Contains(except.Addr())) {
			err = fmt.Errorf("%q is not strictly inside of cidr %q", text, b.CIDR)
		}
		if err != nil {
			c.leaveOut(at(), err)
			ok = false
		}
		e.NotNets = append(e.NotNets, except)
	}
	if !ok {
		return model.Entity{}, false
	}
	return e, true
}

// reportBlocks reports the ipBlock peers of a rejected policy that cannot be read, so that its author sees all that is
// wrong with it at once.
func (c policyConversion) reportBlocks(spec *networkingv1.NetworkPolicySpec) {
	report := func(peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i := range peers {
			if block := peers[i].IPBlock; block != nil {
				c.ipBlock(block, func() *field.Path { return path.Index(i).Child("ipBlock") })
			}
		}
	}
	path := field.NewPath("spec")
	for i := range spec.Ingress {
		report(spec.Ingress[i].From, path.Child("ingress").Index(i).Child("from"))
	}
	for i := range spec.Egress {
		report(spec.Egress[i].To, path.Child("egress").Index(i).Child("to"))
	}
}

func (c policyConversion) leaveOut(at *field.Path, err error) {
	consequence := "the rule is used without this peer"
	if !c.OK() {
		consequence = "when nothing else is wrong, the rule is used without this peer"
	}
	c.Add(RulesLeftOut, at.String(), "%v; %s", err, consequence)
}

// cidr reads a prefix, masked. Bits that the mask cuts off are reported.
func (c policyConversion) cidr(text string, at place) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a CIDR", text)
	}
	if p.Addr().Is4In6() {
		return p, fmt.Errorf("%q is an IPv4-mapped CIDR, which no packet has; write it as IPv4", text)
	}
	masked := p.Masked()
	if masked != p {
		c.Add(Warning, at().String(), "%q has bits beyond its mask; read as %q", text, masked)
	}
	return masked, nil
}
