package validate

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ipBlock converts an ipBlock peer. One that cannot be read as a whole is reported and gives false: to leave out only
// a bad exception would allow what it excepts.
func (c policyConversion) ipBlock(b *networkingv1.IPBlock, path *field.Path) (model.Entity, bool) {
	block, err := c.cidr(b.CIDR, path.Child("cidr"))
	if err != nil {
		c.leaveOut(path.Child("cidr"), err)
		return model.Entity{}, false
	}
	e := model.Entity{Nets: []netip.Prefix{block}}
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		except, err := c.cidr(text, at)
		if err == nil && (except.Bits() <= block.Bits() || !block.Contains(except.Addr())) {
			err = fmt.Errorf("%q is not strictly inside of cidr %q", text, b.CIDR)
		}
		if err != nil {
			c.leaveOut(at, err)
			return model.Entity{}, false
		}
		e.NotNets = append(e.NotNets, except)
	}
	return e, true
}

func (c policyConversion) leaveOut(at *field.Path, err error) {
	c.add(RulesLeftOut, at.String(), "%v; the rule is used without this peer", err)
}

// cidr reads a prefix, masked. Bits that the mask cuts off are reported.
func (c policyConversion) cidr(text string, at *field.Path) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a CIDR", text)
	}
	if p.Addr().Is4In6() {
		return p, fmt.Errorf("%q is an IPv4-mapped CIDR, which no packet has; write it as IPv4", text)
	}
	masked := p.Masked()
	if masked != p {
		c.add(Warning, at.String(), "%q has bits beyond its mask; read as %q", text, masked)
	}
	return masked, nil
}
