package model

import (
	"slices"
	"strconv"
	"strings"
)

// ParseRuleID is the reverse of RuleID.String for a rule of that direction, as far as the text has it: profiles and "self"
// have no more. Not ok: the text is no RuleID, because a part of it was cut for instance.
func ParseRuleID(text string, dir Direction) (id RuleID, ok bool) {
	if rest, staged := strings.CutPrefix(text, stagedPrefix(dir)); staged {
		id, _ = parseEnforced(rest, dir)
		for i, place := range behindText {
			if rest, behind := strings.CutSuffix(rest, "#"+place); behind {
				id, _ = parseEnforced(rest+"#end-of-tier", dir)
				id.Point, id.Index = AtBehind, i
			}
		}
		id.Staged = true
		return id, id.String() == text
	}
	return parseEnforced(text, dir)
}

// StagedRule reports whether the text is that of a RuleID with Staged, and its direction; the text may have been cut.
func StagedRule(text string) (d Direction, ok bool) {
	for _, d := range []Direction{Ingress, Egress} {
		if strings.HasPrefix(text, stagedPrefix(d)) {
			return d, true
		}
	}
	return 0, false
}

func stagedPrefix(d Direction) string { return "staged:" + d.String() + ":" }

func parseEnforced(text string, dir Direction) (id RuleID, ok bool) {
	for _, point := range []Point{AtNoProfile, AtSelf, AtHost} {
		if id = (RuleID{Point: point, Direction: dir}); id.String() == text {
			return id, true
		}
	}
	at, place, _ := strings.Cut(text, "#")
	parts := strings.Split(at, "/")
	id = RuleID{Point: AtRule, Direction: dir}
	if len(parts) > 2 {
		id.Tier, parts = parts[0], parts[1:]
	}
	kinds := PolicyKinds()
	i := slices.IndexFunc(kinds, func(k PolicyKind) bool { return k.Short() == parts[0] })
	if i < 0 {
		return RuleID{}, false
	}
	id.Policy = PolicyKey{Kind: kinds[i], Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		id.Policy.Namespace = parts[1]
	}
	if place == "end-of-tier" {
		id.Point = AtEndOfTier
	} else if number, found := strings.CutPrefix(place, dir.String()+"["); found {
		id.Index, _ = strconv.Atoi(strings.TrimSuffix(number, "]")) // a text that is no number does not print the same
	}
	return id, id.String() == text
}
