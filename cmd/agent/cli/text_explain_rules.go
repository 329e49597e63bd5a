package cli

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/explain"
)

// mostRules is how many rules of one policy are shown that do not match: the nearest. JSON has all of them.
const mostRules = 6

func writePolicy(b *page, p *explain.PolicyAnswer) {
	note := ""
	switch {
	case p.Staged:
		note = "   staged, not enforced"
	case len(p.Rules) == 0:
		note = "   no rules in this direction"
	}
	fmt.Fprintf(b, "     %s%s\n", objectText(p.Kind, p.Namespace, p.Name), note)
	folded := foldRules(p.Rules)
	shown := nearest(folded)
	hidden := 0
	for i, r := range folded {
		switch {
		case r.Matched:
			fmt.Fprintf(b, "->     %s %s\n", ruleText(r), b.screen.paint(r.Action))
		case shown[i]:
			fmt.Fprintf(b, "       %s %s   %s\n", ruleText(r), r.Action, readable(r.Why))
		default:
			hidden++
		}
	}
	if hidden > 0 {
		fmt.Fprintf(b, "       %s more that do not match\n", count(hidden, "rule"))
	}
}

// nearest are the places of the rules to be shown of those that do not match: the ones that the packet fits most of.
func nearest(rules []explain.RuleAnswer) map[int]bool {
	var places []int
	for i := range rules {
		if !rules[i].Matched {
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return rules[b].Mismatch.Nearness() - rules[a].Mismatch.Nearness() })
	shown := map[int]bool{}
	for _, i := range places[:min(len(places), mostRules)] {
		shown[i] = true
	}
	return shown
}

// ruleText is the place of a rule, and the name it has.
func ruleText(r explain.RuleAnswer) string {
	if r.Name == "" {
		return r.Rule
	}
	return fmt.Sprintf("%s %q", r.Rule, r.Name)
}

// foldRules makes one of the combinations of peer and port that one rule of the API object stands for: the one that the packet fits
// most of, since the others are about other peers, and would name what is not the cause.
func foldRules(rules []explain.RuleAnswer) []explain.RuleAnswer {
	var folded []explain.RuleAnswer
	for i := 0; i < len(rules); {
		r, n, at := rules[i], 1, "first"
		for ; i+n < len(rules) && rules[i+n].Rule == r.Rule && rules[i+n].Action == r.Action; n++ {
			if next := rules[i+n]; next.Matched || !r.Matched && next.Mismatch.Nearness() > r.Mismatch.Nearness() {
				r, at = next, "nearest"
			}
		}
		if n > 1 && !r.Matched {
			r.Why += fmt.Sprintf(" (the %s of %d combinations of peer and port)", at, n)
		}
		folded = append(folded, r)
		i += n
	}
	return folded
}
