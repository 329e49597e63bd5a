package calico

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

const (
	// annotationName is the annotation of a rule by which people know it.
	annotationName = "name"

	maxAnnotationBytes = 256 << 10
	maxHTTPEntries     = 20
	maxHTTPPath        = 1024
)

func (c ruleAt) annotations(annotations map[string]string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		size += len(key) + len(annotations[key])
		for _, wrong := range validation.IsQualifiedName(strings.ToLower(key)) {
			c.reject(c.path("metadata.annotations"), "%q: %s", key, wrong)
		}
	}
	if size > maxAnnotationBytes {
		c.reject(c.path("metadata.annotations"), "has %d bytes; the limit is %d", size, maxAnnotationBytes)
	}
}

// checkFamilies: the CIDRs of a rule are of one family, and of that of ipVersion. A stored rule with others is understood: each list
// is for packets of the families that it has (semantics D-9).
func (c ruleAt) checkFamilies(r *Rule, m *model.Rule) {
	seen := uint8(0)
	for _, l := range []struct {
		field string
		nets  []netip.Prefix
	}{
		{"source.nets", m.Source.Nets}, {"source.notNets", m.Source.NotNets},
		{"destination.nets", m.Destination.Nets}, {"destination.notNets", m.Destination.NotNets},
	} {
		for _, n := range l.nets {
			family := uint8(6)
			if n.Addr().Is4() {
				family = 4
			}
			switch {
			case c.stored && r.IPVersion != nil && m.IPVersion != family:
				c.Add(validate.Warning, c.path(l.field), "%s is of IPv%d, and ipVersion is %d: it matches no packet", n, family, *r.IPVersion)
				return
			case c.stored && seen != 0 && seen != family && !c.converted:
				c.Add(validate.Warning, c.path(l.field), "%s is of IPv%d, and the rule has CIDRs of IPv%d: each list is for packets of the families that it has", n, family, seen)
				return
			case c.stored:
			case r.IPVersion != nil && m.IPVersion != family:
				c.reject(c.path(l.field), "%s is of IPv%d, and ipVersion is %d", n, family, *r.IPVersion)
				return
			case seen != 0 && seen != family && !c.converted:
				c.reject(c.path(l.field), "%s is of IPv%d, and the rule has CIDRs of IPv%d: write two rules", n, family, seen)
				return
			}
			seen = family
		}
	}
}

func (c ruleAt) checkHTTP(r *Rule, m *model.Rule) {
	h := r.HTTP
	switch {
	case !c.list.ingress:
		c.reject(c.path("http"), "must not be in an egress rule")
	case m.Action != model.Allow:
		c.reject(c.path("http"), "needs action Allow")
	case m.Protocol != nil && *m.Protocol != model.ProtoTCP:
		c.reject(c.path("http"), "needs protocol TCP, or none")
	case c.stored: // whatever it asks for, the rule never matches
		return
	case len(h.Methods) > maxHTTPEntries:
		c.reject(c.path("http.methods"), "has %d entries; the limit is %d", len(h.Methods), maxHTTPEntries)
		return
	case len(h.Paths) > maxHTTPEntries:
		c.reject(c.path("http.paths"), "has %d entries; the limit is %d", len(h.Paths), maxHTTPEntries)
		return
	}
	for i, m := range h.Methods {
		if slices.Contains(h.Methods[:i], m) {
			c.reject(element(c.path("http.methods"), i), "%q is there twice", m)
		}
	}
	for i, p := range h.Paths {
		text, path := p.Exact+p.Prefix, element(c.path("http.paths"), i)
		switch {
		case p.Exact != "" && p.Prefix != "":
			c.reject(path, "must have exact or prefix, not both")
		case text == "":
			c.reject(path, "must have exact or prefix")
		case len(text) > maxHTTPPath:
			c.reject(path, "has %d characters; the limit is %d", len(text), maxHTTPPath)
		case text[0] != '/':
			c.reject(path, "%q must begin with /", text)
		case strings.ContainsAny(text, "?#"):
			c.reject(path, "%q must not have a query or a fragment", text)
		}
	}
}
