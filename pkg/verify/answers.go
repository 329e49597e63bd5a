package verify

import "cmp"

// agrees reports whether an answer equals the demanded verdict.
func (c *comparing) agrees(a *Answer, v *verdict) bool {
	if c.unnamed {
		return a.Allow == v.allow && a.Entry >= 0
	}
	if a.Allow != v.allow || a.Entry < 0 || a.Entry >= len(c.points) || !c.is(a.Entry, v.by) {
		return false
	}
	return a.Untraced || c.same(a.Passes, a.NPasses, v.passes) && c.same(a.Logs, a.NLogs, v.logs)
}

func (c *comparing) is(entry, point int) bool {
	if entry >= len(c.points) {
		return false
	}
	// There may be more rules than numbers. The entry of a rule without a number has no name, and no entry has the name of its point.
	return c.points[entry] == point || c.points[entry] == -1 && !c.named[point]
}

// same reports whether the entries on the way are those of the points; n is the number of entries, as far as the kernel counts.
func (c *comparing) same(entries []uint16, n int, points []int) bool {
	if n != min(len(points), 0xff) {
		return false
	}
	for i, e := range entries {
		if i < n && !c.is(int(e), points[i]) {
			return false
		}
	}
	return true
}

func (c *comparing) wanted(v *verdict) Decision {
	text := func(points []int) (texts []string) {
		for _, p := range points {
			texts = append(texts, c.demand.points[p].String())
		}
		return texts
	}
	return Decision{v.allow, c.demand.points[v.by].String(), text(v.passes), text(v.logs)}
}

func (c *comparing) got(a *Answer, where string) Decision {
	names := c.k.Texts()
	name := func(entry int) string {
		if entry < 0 || entry >= len(names) {
			return ""
		}
		return names[entry]
	}
	texts := func(entries []uint16, n int) (texts []string) {
		for _, e := range entries[:min(n, len(entries))] {
			texts = append(texts, name(int(e)))
		}
		return texts
	}
	return Decision{a.Allow, cmp.Or(where, name(a.Entry)), texts(a.Passes, a.NPasses), texts(a.Logs, a.NLogs)}
}
