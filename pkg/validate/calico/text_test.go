package calico_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// parse reads one manifest. The kind is of projectcalico.org/v3 unless it says more.
func parse(t *testing.T, kind, metadata, spec string) validate.Document {
	t.Helper()
	group, name, grouped := strings.Cut(kind, " ")
	if !grouped {
		group, name = "projectcalico.org/v3", kind
	}
	text := fmt.Sprintf("{apiVersion: %s, kind: %s,\n metadata: {%s}, spec: {\n%s}}\n", group, name, metadata, spec)
	docs := kinds.Parse("a.yaml", []byte(text))
	if len(docs) != 1 {
		t.Fatalf("%d documents of\n%s", len(docs), text)
	}
	return docs[0]
}

func problemText(d validate.Document) string {
	var lines []string
	for _, p := range d.Problems {
		lines = append(lines, strings.TrimPrefix(p.String(), "a.yaml:"))
	}
	return strings.Join(lines, "\n")
}

// policyText is all of a policy: a line for what it applies to, and one for each rule.
func policyText(p *model.Policy) string {
	order := "last"
	if !math.IsInf(p.Order, 1) {
		order = fmt.Sprint(p.Order)
	}
	var types []string
	if p.AppliesIngress {
		types = append(types, "Ingress")
	}
	if p.AppliesEgress {
		types = append(types, "Egress")
	}
	text := fmt.Sprintf("tier %s order %s types %v: %s", p.Tier, order, types, p.Selector)
	if p.Staged {
		text += " staged " + p.StagedAction.String()
	}
	return text + "\n" + rulesText(p.Ingress, p.Egress)
}

func rulesText(ingress, egress []model.Rule) string {
	var b strings.Builder
	for _, r := range ingress {
		b.WriteString(ruleText("in", r))
	}
	for _, r := range egress {
		b.WriteString(ruleText("out", r))
	}
	return b.String()
}

func ruleText(direction string, r model.Rule) string {
	parts := []string{fmt.Sprintf("%s[%d] %v", direction, r.Index, r.Action)}
	add := func(there bool, format string, args ...any) {
		if there {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Name != "", "%q", r.Name)
	add(r.IPVersion != 0, "IPv%d", r.IPVersion)
	add(r.Protocol != nil, "%s", number(r.Protocol))
	add(r.NotProtocol != nil, "!%s", number(r.NotProtocol))
	add(r.ICMP != nil, "icmp %s", icmpText(r.ICMP))
	add(r.NotICMP != nil, "!icmp %s", icmpText(r.NotICMP))
	add(r.Unmatchable != "", "unmatchable")
	src, dst := entityText(r.Source), entityText(r.Destination)
	add(src != "", "from %s", src)
	add(dst != "", "to %s", dst)
	return strings.Join(parts, " ") + "\n"
}

func number(p *uint8) string {
	if p == nil {
		return ""
	}
	return model.ProtocolName(*p)
}

func icmpText(m *model.ICMPMatch) string {
	switch {
	case m == nil:
		return ""
	case m.Code == nil:
		return fmt.Sprint(m.Type)
	}
	return fmt.Sprintf("%d/%d", m.Type, *m.Code)
}

func entityText(e model.Entity) string {
	var parts []string
	add := func(there bool, format string, args ...any) {
		if there {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(e.Nets != nil, "nets %v", e.Nets)
	add(e.NotNets != nil, "!nets %v", e.NotNets)
	add(e.Selector != nil, "{%v}", e.Selector)
	add(e.NotSelector != nil, "!{%v}", e.NotSelector)
	add(len(e.Ports)+len(e.NamedPorts) > 0, "ports %v%v", e.Ports, e.NamedPorts)
	add(len(e.NotPorts)+len(e.NotNamedPorts) > 0, "!ports %v%v", e.NotPorts, e.NotNamedPorts)
	add(e.Service != nil, "service %v", e.Service)
	return strings.Join(parts, " ")
}

// policyOf is the policy of a document that has one.
func policyOf(t *testing.T, d validate.Document) *model.Policy {
	t.Helper()
	if len(d.Updates) != 1 {
		t.Fatalf("no policy:\n%s", problemText(d))
	}
	u, ok := d.Updates[0].(model.PolicyUpdate)
	if !ok || u.Policy == nil {
		t.Fatalf("got %+v, want a policy\n%s", d.Updates[0], problemText(d))
	}
	return u.Policy
}
