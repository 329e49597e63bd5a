package calico

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// Kinds as validate.Ref has them. Kubernetes has a NetworkPolicy, too.
const (
	refNetworkPolicy       = "NetworkPolicy.projectcalico.org"
	refGlobalNetworkPolicy = "GlobalNetworkPolicy"
)

// ConvertNetworkPolicy returns a NetworkPolicy (semantics §2 to §8).
func ConvertNetworkPolicy(o *NetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	c := newConversion(&o.Object, refNetworkPolicy)
	c.namespaced, c.converted = true, strings.HasPrefix(o.Name, convertedPolicy)
	update := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: o.Namespace, Name: o.Name}}
	p := c.policy(o.Name, required(c.Report, o.Spec))
	p.Selector = selector.And(inNamespace(o.Namespace), p.Selector)
	return c.finish(update, p)
}

// ConvertGlobalNetworkPolicy returns a GlobalNetworkPolicy. One with doNotTrack or preDNAT is about host endpoints alone,
// so it is no policy here.
func ConvertGlobalNetworkPolicy(o *GlobalNetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	c := newConversion(&o.Object, refGlobalNetworkPolicy)
	update := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: o.Name}}
	return c.finish(update, c.globalPolicy(o.Name, required(c.Report, o.Spec)))
}

// convertedPolicy begins the names of the policies that Calico's controllers write to etcd for Kubernetes NetworkPolicies.
// Their CIDR lists may be of both families.
const convertedPolicy = "knp.default."

// conversion converts one object.
type conversion struct {
	*validate.Report
	namespace  string
	namespaced bool // the policy is for one namespace
	// counted: the object is a manifest for which the newest CRDs of projectcalico.org limit the numbers of entries, and refuse
	// entries that are there twice. What a datastore has may be older than they are, and crd.projectcalico.org has no such limits.
	counted   bool
	converted bool     // Calico's controllers made the policy: its rules may have CIDRs of both families
	stored    bool     // a datastore has checked the object; only what is needed to understand it is checked again
	unknown   []string // its fields that are not known here
	newerType newer    // a type of the policy that is not known here
}

func newConversion(o *Object, kind string) *conversion {
	ref := validate.Ref{Kind: kind, Namespace: o.Namespace, Name: o.Name}
	return &conversion{Report: validate.NewReport(ref), namespace: o.Namespace,
		counted: !o.stored && !isOfOldGroup(o), stored: o.stored, unknown: o.unknown}
}

// finish makes the answer of a conversion. Without p, and nothing wrong, the object is no policy.
func (c *conversion) finish(update model.PolicyUpdate, p *model.Policy) (model.PolicyUpdate, []validate.Problem, bool) {
	if c.OK() {
		c.close(p)
		update.Policy = p
	}
	return update, c.Done(), c.OK()
}

// required returns a spec that must be there, and an empty one if it is not. Without a spec a policy would select everything.
func required[T any](rep *validate.Report, spec *T) *T {
	if spec == nil {
		rep.Add(validate.Rejected, "spec", "must be there")
		return new(T)
	}
	return spec
}

func (c *conversion) reject(path, format string, args ...any) {
	c.Add(validate.Rejected, path, format, args...)
}

// globalPolicy is nil for a policy that is about host endpoints alone.
func (c *conversion) globalPolicy(name string, spec *GlobalSpec) *model.Policy {
	p := c.policy(name, &spec.PolicySpec)
	if s := c.selector("spec.namespaceSelector", spec.NamespaceSelector); s != nil {
		p.Selector = selector.And(p.Selector, ofNamespaces(s))
	}
	c.checkHostFields(spec)
	if spec.DoNotTrack || spec.PreDNAT {
		field := "spec.preDNAT"
		if spec.DoNotTrack {
			field = "spec.doNotTrack"
		}
		if c.OK() {
			c.Add(validate.RulesLeftOut, field, "such a policy is about host endpoints alone, which are not enforced yet: nothing of it is in force")
		}
		return nil
	}
	if spec.ApplyOnForward && c.OK() {
		c.Add(validate.Warning, "spec.applyOnForward", "in force for pods; what hosts forward is not judged yet")
	}
	return p
}

func (c *conversion) checkHostFields(spec *GlobalSpec) {
	switch {
	case spec.DoNotTrack && spec.PreDNAT:
		c.reject("spec.preDNAT", "must not be true beside doNotTrack")
	case spec.PreDNAT && len(spec.Egress) > 0:
		c.reject("spec.egress", "a policy with preDNAT must not have egress rules")
	case spec.PreDNAT && slices.Contains(spec.Types, typeEgress):
		c.reject("spec.types", "a policy with preDNAT must not have type Egress")
	case (spec.PreDNAT || spec.DoNotTrack) && !spec.ApplyOnForward:
		c.reject("spec.applyOnForward", "must be true in a policy with doNotTrack or preDNAT")
	}
}

// policy converts what all policies have in common. Its selector lacks the namespaces.
func (c *conversion) policy(name string, spec *PolicySpec) *model.Policy {
	p := &model.Policy{Tier: model.TierDefault, Order: model.NoOrder, Selector: selector.All()}
	if spec.Tier != "" {
		p.Tier = spec.Tier
		isName := validate.DNSLabel
		if c.stored {
			isName = validate.DNSSubdomain
		}
		for _, wrong := range isName(spec.Tier) {
			c.reject("spec.tier", "%q is no name of a tier: %s", spec.Tier, wrong)
		}
	}
	c.checkPrefix(name, p.Tier)
	if spec.Order != nil {
		p.Order = *spec.Order
	}
	if s := c.selector("spec.selector", spec.Selector); s != nil {
		p.Selector = s
	}
	if s := c.selector("spec.serviceAccountSelector", spec.ServiceAccountSelector); s != nil {
		p.Selector = selector.And(p.Selector, ofServiceAccounts(s))
	}
	c.hints(spec.PerformanceHints)
	p.AppliesIngress, p.AppliesEgress = c.types(spec)
	p.Ingress = c.rules(ingressRules, spec.Ingress, p.AppliesIngress)
	p.Egress = c.rules(egressRules, spec.Egress, p.AppliesEgress)
	return p
}

// checkPrefix warns of a name that says another tier than the policy is in. Older releases of Calico demanded that the
// name begins with the tier.
func (c *conversion) checkPrefix(name, tier string) {
	prefix, rest, dotted := strings.Cut(name, ".")
	if dotted && prefix != tier && !isConverted(prefix, rest) {
		c.Add(validate.Warning, "metadata.name", "the name says tier %s, and the policy is in tier %s", prefix, tier)
	}
}

// Types of a policy.
const (
	typeIngress = "Ingress"
	typeEgress  = "Egress"
)

// types returns the directions that the policy is about. Without a list it is about those that it has rules for, and about
// ingress if it has none (semantics §4).
func (c *conversion) types(spec *PolicySpec) (ingress, egress bool) {
	if len(spec.Types) == 0 {
		return len(spec.Ingress) > 0 || len(spec.Egress) == 0, len(spec.Egress) > 0
	}
	const all = 2
	if len(spec.Types) > all && !c.stored {
		c.reject("spec.types", "has %d entries; the limit is %d", len(spec.Types), all)
		return false, false
	}
	for i, t := range spec.Types {
		at := element("spec.types", i)
		if c.stored {
			t = oneOf(t, typeIngress, typeEgress)
		}
		switch t {
		case typeIngress:
			ingress = true
		case typeEgress:
			egress = true
		}
		switch {
		case t != typeIngress && t != typeEgress && t != "" && c.stored:
			c.newerType = cmp.Or(c.newerType, newer{at, fmt.Sprintf("the type %q is not known, and may mean either direction", t)})
		case t != typeIngress && t != typeEgress:
			c.reject(at, "%q must be Ingress or Egress", t)
		case !c.stored && slices.Contains(spec.Types[:i], t):
			c.reject(at, "%q is there twice", t)
		}
	}
	either := c.newerType != newer{}
	return either || ingress, either || egress
}

func (c *conversion) hints(hints []string) {
	const known = "AssumeNeededOnEveryNode"
	for i, h := range hints {
		at := element("spec.performanceHints", i)
		switch {
		case c.stored: // it changes no verdict, in no version
		case h != known:
			c.reject(at, "%q must be %s", h, known)
		case i > 0:
			c.reject(at, "%q is there twice", h)
		}
	}
}
