package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// writeExplanation writes an explanation for people: what decides first, then how each side came to its verdict.
func writeExplanation(w io.Writer, e *explain.Explanation) error {
	b := &page{screen: screenOf(w)}
	switch {
	case len(e.Answers) > 0:
		writeAnswers(b, e)
	case len(e.Ports) > 0:
		writePorts(b, e)
	default:
		writeFlow(b, e)
	}
	for i, text := range e.NotEnforced {
		if i == 0 {
			fmt.Fprintf(b, "\n%s: the kernel does not enforce this answer; margay show rules has what it enforces\n", b.screen.alarm("not enforced"))
		}
		fmt.Fprintf(b, "  %s\n", text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// page is the text of an explanation, before it is written to a screen.
type page struct {
	strings.Builder
	screen *screen
}

// verdict is a verdict in its colour, in a column.
func (p *page) verdict(text string) string { return p.screen.word(fmt.Sprintf("%-7s", text)) }

// writeFlow is about one flow.
func writeFlow(b *page, e *explain.Explanation) {
	fmt.Fprintf(b, "%s: %s -> %s\n", b.screen.paint(e.Verdict), e.Src, e.Dst)
	fmt.Fprintf(b, "  packet   %s\n", e.Packet)
	fmt.Fprintf(b, "  egress   %s\n", b.screen.word(e.Egress.String()))
	fmt.Fprintf(b, "  ingress  %s\n", b.screen.word(e.Ingress.String()))
	if e.Note != "" && e.Egress.Decision != explain.DecisionNone && e.Ingress.Decision != explain.DecisionNone {
		fmt.Fprintf(b, "  note     %s\n", e.Note) // otherwise a side says it
	}
	if e.Caveat != "" {
		fmt.Fprintf(b, "  but      %s\n", e.Caveat)
	}
	writeStaged(b, "egress", e.Egress)
	writeStaged(b, "ingress", e.Ingress)
	writeSide(b, "egress of "+e.Src, e.Egress)
	writeSide(b, "ingress of "+e.Dst, e.Ingress)
}

// writeStaged shows the staged policies that would have decided otherwise, a line each.
func writeStaged(b *page, direction string, s *explain.Side) {
	for _, a := range s.Staged {
		fmt.Fprintf(b, "  staged   %s\n", stagedText(direction, a))
	}
}

func stagedText(direction string, a explain.StagedAnswer) string {
	which := objectText(a.Kind, a.Namespace, a.Name) + " were enforced"
	if a.Kind == "" {
		which = "all staged policies were enforced"
	}
	word := "denied"
	if a.Verdict == explain.VerdictAllow {
		word = "allowed"
	}
	return fmt.Sprintf("%s would be %s if %s: %s", direction, word, which, a.Reason)
}

// writeAnswers is about several pairs of ends: a line each, then in full the first of each verdict that is not allow, and of each allow about
// which there is more to say.
func writeAnswers(b *page, e *explain.Explanation) {
	fmt.Fprintf(b, "%s: %s -> %s\n", b.screen.paint(e.Verdict), e.Src, e.Dst)
	if e.Note != "" {
		fmt.Fprintf(b, "  note     %s\n", e.Note)
	}
	said := map[string]bool{}
	for _, a := range e.Answers {
		if len(a.Ports) > 0 {
			b.WriteString("\n")
			writePorts(b, a)
			continue
		}
		fmt.Fprintf(b, "  %s  %s -> %s  %s\n", b.verdict(a.Verdict), a.Src, a.Dst, portText(a.Flow))
	}
	for _, a := range e.Answers {
		if len(a.Ports) > 0 {
			continue
		}
		more := besidesVerdict(a)
		because := a.Egress.String() + a.Ingress.String() + more
		if (a.Verdict != explain.VerdictAllow || more != "") && !said[because] {
			said[because] = true
			b.WriteString("\n")
			writeFlow(b, a)
		}
	}
	if len(said) == 0 && len(e.Answers[0].Ports) == 0 {
		b.WriteString("\n")
		writeFlow(b, e.Answers[0])
	}
}

// besidesVerdict is what is said of a flow besides its verdict: what may stop it, and what staged policies would do.
func besidesVerdict(e *explain.Explanation) string {
	var staged page
	writeStaged(&staged, "egress", e.Egress)
	writeStaged(&staged, "ingress", e.Ingress)
	return e.Caveat + staged.String()
}

func portText(f *explain.Flow) string {
	if f.Port == 0 {
		return f.Protocol
	}
	return fmt.Sprintf("%d/%s", f.Port, f.Protocol)
}

// writePorts is about every port of two ends. The verdict of the most ports of a protocol comes last.
func writePorts(b *page, e *explain.Explanation) {
	fmt.Fprintf(b, "%s: %s -> %s, by port\n", b.screen.paint(e.Verdict), e.Src, e.Dst)
	if e.Note != "" {
		fmt.Fprintf(b, "  note     %s\n", e.Note)
	}
	for _, verdict := range []string{explain.VerdictAllow, explain.VerdictDeny} {
		var groups portGroups
		for _, p := range e.Ports {
			if p.Verdict == verdict {
				groups.add(decisive(&p), p)
			}
		}
		for _, because := range groups.order {
			fmt.Fprintf(b, "  %s  %s\n             %s\n", b.verdict(verdict), rangeTexts(groups.of[because]), because)
		}
	}
	if e.Caveat != "" {
		fmt.Fprintf(b, "  but      %s\n", e.Caveat)
	}
	writeStagedPorts(b, e.Ports)
}

// writeStagedPorts shows the staged policies that would have decided otherwise, a line each, with the ports.
func writeStagedPorts(b *page, ports []explain.PortVerdict) {
	var groups portGroups
	for _, p := range ports {
		for _, a := range p.Egress.Staged {
			groups.add(stagedText("egress", a), p)
		}
		for _, a := range p.Ingress.Staged {
			groups.add(stagedText("ingress", a), p)
		}
	}
	for _, text := range groups.order {
		fmt.Fprintf(b, "  staged   %s\n             %s\n", text, rangeTexts(groups.of[text]))
	}
}

// decisive is what decides: of a denial the side that denies, otherwise both.
func decisive(p *explain.PortVerdict) string {
	egress, ingress := "egress "+p.Egress.String(), "ingress "+p.Ingress.String()
	switch {
	case p.Egress.Verdict == explain.VerdictDeny:
		return egress
	case p.Ingress.Verdict == explain.VerdictDeny:
		return ingress
	case p.Verdict == explain.VerdictDeny:
		return p.Caveat
	}
	return egress + "; " + ingress
}

func objectText(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// writeSide shows the policies that were considered. If all of them are policies of Kubernetes, tiers and profiles are
// left out; without a policy nothing is shown.
func writeSide(b *page, title string, s *explain.Side) {
	plain := isPlain(s)
	if len(s.Tiers) == 0 || plain && s.Decision == explain.DecisionNoPolicy {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, t := range s.Tiers {
		name := "profiles"
		if t.Name != "" {
			name = "tier " + t.Name
		}
		if !plain {
			fmt.Fprintf(b, "   %s\n", name)
		}
		for i := range t.Policies {
			writePolicy(b, &t.Policies[i])
		}
		switch {
		case t.End != "" && plain:
			b.WriteString("-> no rule matches, which denies\n")
		case t.End != "":
			fmt.Fprintf(b, "-> end of %s %s\n", name, t.End)
		case len(t.Policies) == 0:
			b.WriteString("     no policy\n")
		}
	}
}

// isPlain reports whether only Kubernetes NetworkPolicies of the default tier were considered, and what a Namespace
// gives.
func isPlain(s *explain.Side) bool {
	for _, t := range s.Tiers {
		for _, p := range t.Policies {
			_, ofNamespace := model.NamespaceOfProfile(p.Name)
			isPolicy := t.Name == model.TierDefault && p.Kind == "NetworkPolicy" && p.APIVersion == "networking.k8s.io/v1" && !p.Staged
			if !isPolicy && (t.Name != "" || !ofNamespace) {
				return false
			}
		}
	}
	return true
}
