package table

import "github.com/margay-project/margay/bpf"

// pages lays the columns out as two levels of pages: first levels for destination ports, then, if source ports matter,
// for those, then the second level, in which equal pages are one.
func (b *builder) pages() {
	levels := [][]span{}
	levels = append(levels, b.columns.spans[:]...)
	if len(b.sports.list) > 1 {
		levels = append(levels, b.sports.spans[:]...)
	}
	b.t.L4 = make([]bpf.L4Page, len(levels))
	seen := map[bpf.L4Page]uint16{}
	plain := map[int]uint16{} // by column: the page that has no other
	for first, spans := range levels {
		for high := range 256 {
			base := high << 8
			for len(spans) > 1 && int(spans[1].lo) <= base {
				spans = spans[1:]
			}
			one := len(spans) == 1 || int(spans[1].lo) > base+0xff
			n, ok := plain[spans[0].col]
			if !one || !ok {
				if !b.spend(20) {
					return
				}
				n = b.page(seen, fillPage(spans, base))
			}
			if one {
				plain[spans[0].col] = n
			}
			b.t.L4[first].Col[high] = n
		}
	}
}

// page returns the number of the page with this content.
func (b *builder) page(seen map[bpf.L4Page]uint16, page bpf.L4Page) uint16 {
	n, ok := seen[page]
	if !ok {
		n = uint16(len(b.t.L4))
		seen[page] = n
		b.t.L4 = append(b.t.L4, page)
	}
	return n
}

// fillPage writes the columns of the 256 keys from base on. spans[0] contains the first key.
func fillPage(spans []span, base int) (page bpf.L4Page) {
	for low := range page.Col {
		for len(spans) > 1 && int(spans[1].lo) <= base+low {
			spans = spans[1:]
		}
		page.Col[low] = uint16(spans[0].col)
	}
	return page
}
