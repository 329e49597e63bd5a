package match

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// everyPort is the range that holds every port and every ICMP type and code.
var everyPort = model.PortRange{Lo: 0, Hi: 0xffff}

// normalize returns the same ports as disjoint, ascending ranges that do not touch. Ranges with Lo > Hi hold nothing. The
// result may be the argument.
func normalize(ranges []model.PortRange) []model.PortRange {
	if isNormal(ranges) {
		return ranges
	}
	sorted := slices.DeleteFunc(slices.Clone(ranges), func(r model.PortRange) bool { return r.Lo > r.Hi })
	slices.SortFunc(sorted, func(a, b model.PortRange) int {
		return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(a.Hi, b.Hi))
	})
	out := sorted[:0]
	for _, r := range sorted {
		if n := len(out); n > 0 && int(r.Lo) <= int(out[n-1].Hi)+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// isNormal reports whether normalize has nothing to do.
func isNormal(ranges []model.PortRange) bool {
	for i, r := range ranges {
		if r.Lo > r.Hi || i > 0 && int(r.Lo) <= int(ranges[i-1].Hi)+1 {
			return false
		}
	}
	return true
}

// intersect returns the ports in both lists, which must be normalized.
func intersect(a, b []model.PortRange) []model.PortRange {
	var out []model.PortRange
	for len(a) > 0 && len(b) > 0 {
		if lo, hi := max(a[0].Lo, b[0].Lo), min(a[0].Hi, b[0].Hi); lo <= hi {
			out = append(out, model.PortRange{Lo: lo, Hi: hi})
		}
		if a[0].Hi < b[0].Hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// complement returns the ports that are not in the list, which must be normalized.
func complement(ranges []model.PortRange) []model.PortRange {
	var out []model.PortRange
	next := 0
	for _, r := range ranges {
		if next < int(r.Lo) {
			out = append(out, model.PortRange{Lo: uint16(next), Hi: r.Lo - 1})
		}
		next = int(r.Hi) + 1
	}
	if next <= 0xffff {
		out = append(out, model.PortRange{Lo: uint16(next), Hi: 0xffff})
	}
	return out
}
