package plan

import (
	"encoding/binary"
	"net/netip"
)

// fewParts is how many parts are changed one after the other, however many prefixes they have in common.
const fewParts = 8

// regroup returns parts with the same effect of which no two have a prefix in common. An author may write thousands of objects with the
// same addresses: changed part by part, each address would have a list of sets of its own after each part, as long as there were parts.
func regroup(parts []changedPart) (all []changedPart) {
	at := map[netip.Prefix]int{} // index in of
	var of [][]byte              // the indexes of a prefix' parts, in order
	var prefixes []netip.Prefix
	for i, p := range parts {
		for _, prefix := range p.prefixes {
			n, known := at[prefix]
			if !known {
				n = len(of)
				at[prefix] = n
				of, prefixes = append(of, nil), append(prefixes, prefix)
			}
			of[n] = binary.BigEndian.AppendUint32(of[n], uint32(i))
		}
	}
	groups := map[string]int{} // index in all
	for n, indexes := range of {
		g, known := groups[string(indexes)]
		if !known {
			g = len(all)
			groups[string(indexes)] = g
			var sum changedPart
			for ; len(indexes) > 0; indexes = indexes[4:] {
				p := &parts[binary.BigEndian.Uint32(indexes)]
				sum.join, sum.leave = append(sum.join, p.join...), append(sum.leave, p.leave...)
			}
			all = append(all, sum)
		}
		all[g].prefixes = append(all[g].prefixes, prefixes[n])
	}
	return all
}
