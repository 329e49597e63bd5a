package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/margay-project/margay/pkg/agent/wire"
)

// mostRules is how many rules of one policy are shown that did not match; JSON has them all.
const mostRules = 6

// writeExplanation writes an explanation for people: what decides first, then how each side came to its verdict.
func writeExplanation(w io.Writer, e *wire.Explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s -> %s\n", e.Verdict, e.Src, e.Dst)
	fmt.Fprintf(&b, "  packet   %s\n", e.Packet)
	fmt.Fprintf(&b, "  egress   %s\n", sideText(&e.Egress))
	fmt.Fprintf(&b, "  ingress  %s\n", sideText(&e.Ingress))
	if e.Caveat != "" {
		fmt.Fprintf(&b, "  but      %s\n", e.Caveat)
	}
	writeSide(&b, "egress of "+e.Src, &e.Egress)
	writeSide(&b, "ingress of "+e.Dst, &e.Ingress)
	_, err := io.WriteString(w, b.String())
	return err
}

// sideText is the verdict of one side in one line.
func sideText(s *wire.ExplainSide) string {
	object := objectText(s.Kind, s.Namespace, s.Name)
	switch {
	case len(s.Tiers) == 0:
		return s.Rule
	case s.Rule == "end-of-tier":
		return fmt.Sprintf("%s by the end of tier %s: no rule of it matches, and %s selects the pod", s.Verdict, s.Tier, object)
	case s.Rule == "no-profile-match":
		return s.Verdict + ": no tier decides, and no rule of the pod's profiles matches"
	case s.Tier == "":
		return fmt.Sprintf("%s by %s %s: no tier decides", s.Verdict, object, s.Rule)
	}
	return fmt.Sprintf("%s by %s %s in tier %s", s.Verdict, object, s.Rule, s.Tier)
}

func objectText(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

func writeSide(b *strings.Builder, title string, s *wire.ExplainSide) {
	if len(s.Tiers) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, t := range s.Tiers {
		name := "profiles"
		if t.Name != "" {
			name = "tier " + t.Name
		}
		fmt.Fprintf(b, "   %s\n", name)
		for i := range t.Policies {
			writePolicy(b, &t.Policies[i])
		}
		switch {
		case t.End != "":
			fmt.Fprintf(b, "-> end of %s %s\n", name, t.End)
		case len(t.Policies) == 0:
			b.WriteString("     no policy\n")
		}
	}
}

func writePolicy(b *strings.Builder, p *wire.ExplainPolicy) {
	note := ""
	switch {
	case p.Staged:
		note = "   staged, not enforced"
	case len(p.Rules) == 0:
		note = "   no rules in this direction"
	}
	fmt.Fprintf(b, "     %s%s\n", objectText(p.Kind, p.Namespace, p.Name), note)
	shown, hidden := 0, 0
	for _, r := range foldRules(p.Rules) {
		switch {
		case r.Matched:
			fmt.Fprintf(b, "->     %s %s\n", r.Rule, r.Action)
		case shown < mostRules:
			shown++
			fmt.Fprintf(b, "       %s %s   %s\n", r.Rule, r.Action, readable(r.Why))
		default:
			hidden++
		}
	}
	if hidden > 0 {
		fmt.Fprintf(b, "       %s more that do not match\n", count(hidden, "rule"))
	}
}

// foldRules makes one of the combinations of peer and port that one rule of the API object stands for.
func foldRules(rules []wire.ExplainRule) []wire.ExplainRule {
	var folded []wire.ExplainRule
	for i := 0; i < len(rules); {
		r, n := rules[i], 1
		for ; i+n < len(rules) && rules[i+n].Rule == r.Rule && rules[i+n].Action == r.Action; n++ {
			if rules[i+n].Matched {
				r.Matched = true
			}
		}
		if n > 1 && !r.Matched {
			r.Why += fmt.Sprintf(" (the first of %d combinations of peer and port)", n)
		}
		folded = append(folded, r)
		i += n
	}
	return folded
}
